// Three charts of the last minutes, drawn by uPlot.

const KEPT = 300;
const history = { at: [], rate: [], p50: [], p99: [], goal: [], cores: [] };
const charts = {};

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function chart(id, series, scale) {
  const place = byId(id);
  const [ink, grid] = [color('--quiet'), { stroke: color('--line'), width: 1 }];
  const axis = { stroke: ink, grid, ticks: { show: false }, font: '11px system-ui' };
  const options = {
    width: Math.max(200, place.clientWidth),
    height: 150,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 14, 0, 0],
    scales: { x: { time: false }, y: scale },
    axes: [
      { ...axis, size: 26, values: (_, ticks) => ticks.map((tick) => (tick > 0 ? '' : tick === 0 ? 'now' : `${tick} s`)) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : short(tick))) },
    ],
    series: [{}, ...series],
  };
  return new uPlot(options, [[], ...series.map(() => [])], place);
}

const short = (number) =>
  number >= 1e6 ? `${digits(number / 1e6, 1)}M` : number >= 1e4 ? `${digits(number / 1e3, 1)}k` : digits(number, 3);

function line(name, width, dash) {
  return { stroke: color(name), width, dash, points: { show: false }, spanGaps: true };
}

function makeCharts() {
  const upFromZero = { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] };
  charts.rate = chart('chart-rate', [line('--strong', 2)], upFromZero);
  charts.cores = chart('chart-cores', [line('--strong', 2)], upFromZero);
  const logarithmic = {
    distr: 3,
    range: (_, least, most) => [10 ** Math.floor(Math.log10(least || 0.1)), 10 ** Math.ceil(Math.log10((most || 1) * 1.01))],
  };
  const lines = [line('--strong', 2), line('--p50', 1.5), line('--late', 1.5, [5, 4])];
  charts.latency = chart('chart-latency', lines, logarithmic);
}

function forgetHistory() {
  for (const values of Object.values(history)) values.length = 0;
}

function remember(point) {
  for (const [key, values] of Object.entries(history)) {
    values.push(point[key] ?? null);
    if (values.length > KEPT) values.shift();
  }
}

function drawCharts() {
  if (!charts.rate) makeCharts();
  else fitCharts();
  const now = history.at[history.at.length - 1] ?? 0;
  const ago = history.at.map((at) => at - now);
  // A logarithm has no zero.
  const above = (values) => values.map((value) => (value > 0 ? value : null));
  charts.rate.setData([ago, history.rate]);
  charts.cores.setData([ago, history.cores]);
  charts.latency.setData([ago, above(history.p99), above(history.p50), above(history.goal)]);
  // When there was a line for the first time, in milliseconds since the page was asked for.
  if (ago.length > 1) byId('charts').dataset.firstLine ??= String(performance.now());
  const last = (key) => history[key][history[key].length - 1];
  const label = (id, text) => byId(id).setAttribute('aria-label', text);
  label('chart-rate', `Rows per second, now ${count(last('rate'))}`);
  label('chart-cores', `Cores in use, now ${digits(last('cores'), 3)}`);
  const latency = `p99 ${milliseconds(last('p99') ?? NaN)}, p50 ${milliseconds(last('p50') ?? NaN)}`;
  label('chart-latency', `Latency, now ${latency}, target ${milliseconds(last('goal') ?? NaN)}`);
}

function dropCharts() {
  for (const [name, drawn] of Object.entries(charts)) {
    drawn.destroy();
    delete charts[name];
  }
}

function fitCharts() {
  for (const drawn of Object.values(charts)) {
    const width = drawn.root.parentNode.clientWidth;
    // Nothing while the charts are hidden.
    if (width > 0 && width !== drawn.width) drawn.setSize({ width: Math.max(200, width), height: 150 });
  }
}

let resizing;
addEventListener('resize', () => {
  clearTimeout(resizing);
  resizing = setTimeout(fitCharts, 150);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', dropCharts);
