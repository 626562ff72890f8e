// The figures of a job: rates and percentiles between two looks at its counts.

// The figures are of the last seconds, or since the target was changed.
const WINDOW_S = 5;
const WINDOW_MIN_S = 2;
const state = {
  // All jobs, as the server lists them, and the name of the one that is shown.
  jobs: [], name: null, isServer: false,
  // What the shown job has said of itself, and its last counts.
  job: null, text: null, seen: [],
  // Its events: the name, and how to end them.
  listening: null,
};

const difference = (now, before) => Math.max(0, now - before);

// The percentile of the rows between two looks at a sink's latencies.
function percentile(latency, before, share) {
  const known = new Map(before || []);
  const rows = latency.map(([ms, all]) => [ms, all - (known.get(ms) || 0)]).filter(([, some]) => some > 0);
  let left = Math.ceil(rows.reduce((sum, [, some]) => sum + some, 0) * share);
  for (const [ms, some] of rows) {
    left -= some;
    if (left <= 0) return ms;
  }
  return null;
}

// What happened between two looks: rates by node, source, sink and worker.
function flowBetween(before, now) {
  const seconds = Math.max(1e-3, now.at_s - before.at_s);
  const rate = (one, other) => difference(one, other ?? 0) / seconds;
  const flow = now.nodes.map((node, at) => ({
    rate: rate(node.rows, before.nodes[at]?.rows),
    busy: rate(node.busy_s, before.nodes[at]?.busy_s),
    waiting: node.waiting,
    state: node.state_bytes,
  }));
  const named = (list, key, of) => {
    const known = new Map(list.map((one) => [one[key], one]));
    return (one) => [one[key], of(one, known.get(one[key]) || {})];
  };
  flow.sources = Object.fromEntries(now.sources.map(named(before.sources, 'table', (one, other) => ({
    rate: rate(one.rows, other.rows),
  }))));
  flow.sinks = Object.fromEntries(now.sinks.map(named(before.sinks, 'table', (one, other) => ({
    rate: rate(one.rows, other.rows),
    p50: percentile(one.latency, other.latency, 0.5),
    p99: percentile(one.latency, other.latency, 0.99),
    target: one.target_ms,
  }))));
  flow.workers = Object.fromEntries(now.workers.map(named(before.workers, 'worker', (one, other) => ({
    cores: one.cpu_s === null ? NaN : rate(one.cpu_s, other.cpu_s),
    wakeups: one.wakeups === null ? null : rate(one.wakeups, other.wakeups),
  }))));
  flow.rows = Object.values(flow.sources).reduce((sum, source) => sum + source.rate, 0);
  flow.cores = rate(now.cpu_s, before.cpu_s);
  flow.seconds = seconds;
  return flow;
}

// The sink that is nearest to its target, or furthest above it; without targets, the slowest. One that was chosen
// stands for itself.
function worst(flow) {
  const chosen = chosenSink();
  const named = Object.entries(flow.sinks).filter(([table]) => !chosen || table === chosen);
  const sinks = named.map(([, sink]) => sink).filter((sink) => sink.p99 !== null);
  const badness = (sink) => (sink.target ? 1e6 * (sink.p99 / sink.target) : 0) + sink.p99 / 1e6;
  return sinks.reduce((found, sink) => (!found || badness(sink) > badness(found) ? sink : found), null);
}

function forget() {
  state.seen = [];
  forgetHistory();
  measured.clear();
}

function restartWindow() {
  state.seen = state.seen.slice(-1);
}

function showCounts(counts) {
  let last = state.seen[state.seen.length - 1];
  if (last && last.at_s > counts.at_s) {
    // Another run of the same query.
    forget();
    last = undefined;
  }
  state.seen.push(counts);
  while (state.seen.length > 2 && counts.at_s - state.seen[1].at_s >= WINDOW_S) state.seen.shift();
  const rows = counts.sources.reduce((sum, one) => sum + one.rows, 0);
  showHead(counts.status, `up ${span(counts.at_s)}, ${count(rows)} rows read`);
  showTarget(counts);
  const flow = flowBetween(last ? state.seen[0] : counts, counts);
  if (!last) drawCharts();
  if (last) {
    const now = flowBetween(last, counts);
    const slowest = worst(now);
    remember({
      at: counts.at_s, rate: now.rows, cores: now.cores, goal: targetOf(counts), p50: slowest?.p50, p99: slowest?.p99,
    });
    drawCharts();
    state.cores = flow.cores;
    showFigures(counts, flow);
  }
  showPlan(flow);
  showTables(state.job, counts, flow);
  byId('main').dataset.looks = String(Number(byId('main').dataset.looks || 0) + 1);
}

function showFigures(counts, flow) {
  showCost(flow.cores);
  say('rate', count(flow.rows));
  const late = counts.sources.reduce((sum, source) => sum + source.late, counts.late_elsewhere);
  const bad = counts.sources.reduce((sum, source) => sum + source.bad, counts.bad_elsewhere);
  say('rows-said', `${count(late)} late, ${count(bad)} bad`);
  const slowest = worst(flow);
  say('p99', slowest ? milliseconds(slowest.p99) : '–');
  const isLate = slowest?.target && slowest.p99 > slowest.target;
  const verdict = !slowest ? 'no rows went out' : !slowest.target ? 'no target' : isLate ? 'late: the target is' : 'in time: the target is';
  say('p99-said', slowest?.target ? `${verdict} ${milliseconds(slowest.target)}` : verdict);
  byId('p99').classList.toggle('late', Boolean(isLate));
  byId('p99').classList.toggle('met', Boolean(slowest?.target && !isLate));
  const isWhole = flow.seconds >= WINDOW_MIN_S;
  showMeasured(targetOf(counts), { cores: flow.cores, p99: slowest?.p99, rate: flow.rows, isWhole });
}
