// The slider: a latency target, and what it costs.

const STEPS_MS = [0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10000];
const HOURS_PER_MONTH = 730;
// How long a change is left alone: the server tells the old target until it has heard the new one.
const SETTLES_MS = 1500;
let steps = STEPS_MS;
let changedAt = -Infinity;
let sending;
// What was measured at each target, the last time.
const measured = new Map();

const chosenSink = () => byId('sink').value || null;

// The target of the chosen sinks: the shortest.
function targetOf(counts) {
  const chosen = chosenSink();
  const sinks = counts.sinks.filter((sink) => !chosen || sink.table === chosen);
  const targets = sinks.map((sink) => sink.target_ms).filter((target) => target !== null);
  return targets.length > 0 ? Math.min(...targets) : null;
}

function showSinks(counts) {
  const tables = counts.sinks.map((sink) => sink.table);
  const select = byId('sink');
  byId('sink-choice').hidden = tables.length < 2;
  if (select.dataset.tables === tables.join('\n')) return;
  select.dataset.tables = tables.join('\n');
  const options = tables.length < 2 ? [] : tables.map((table) => element('option', { value: table }, table));
  select.replaceChildren(element('option', { value: '' }, 'all sinks'), ...options);
}

function place(target) {
  const slider = byId('slider');
  const all = new Set(STEPS_MS);
  if (target !== null) all.add(target);
  steps = [...all].sort((one, other) => one - other);
  slider.max = String(steps.length - 1);
  slider.value = String(steps.indexOf(target ?? 100));
  slider.disabled = false;
  say('slider-least', milliseconds(steps[0]));
  say('slider-most', milliseconds(steps[steps.length - 1]));
  speak(target);
}

function speak(target) {
  const text = target === null ? 'any time (no target is set)' : milliseconds(target);
  say('target-value', text);
  byId('slider').setAttribute('aria-valuetext', text);
}

function showTarget(counts) {
  showSinks(counts);
  if (performance.now() - changedAt > SETTLES_MS) place(targetOf(counts));
}

// Another job is shown.
function forgetTarget() {
  changedAt = -Infinity;
  byId('slider').disabled = true;
  byId('sink').value = '';
  say('target-value', 'no target');
  say('target-said', '');
  for (const id of ['cores', 'money', 'p99', 'rate']) say(id, '–');
  for (const id of ['p99-said', 'rows-said']) say(id, '');
}

async function send(job, target) {
  const name = encodeURIComponent(job);
  const sink = chosenSink();
  const setting = sink ? `latency_target.${sink}` : 'latency_target';
  const change = { settings: { [setting]: `${target} ms` } };
  try {
    await sendJson('PATCH', `/v1/jobs/${name}`, change);
    if (job !== state.name) return;
    say('target-said', `The target is now ${milliseconds(target)}.`);
    restartWindow();
  } catch (error) {
    if (job !== state.name) return;
    say('target-said', `The target was not changed: ${error.message}`);
    changedAt = -Infinity;
  }
}

byId('slider').addEventListener('input', () => {
  const target = steps[Number(byId('slider').value)];
  changedAt = performance.now();
  speak(target);
  clearTimeout(sending);
  const job = state.name;
  sending = setTimeout(() => send(job, target), 120);
});
byId('sink').addEventListener('change', () => { changedAt = -Infinity; });

const money = (amount) =>
  amount.toLocaleString('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 2 });

function showCost(cores) {
  const price = Number(byId('price').value);
  say('cores', digits(cores, 3));
  say('money', Number.isFinite(price) && Number.isFinite(cores) ? money(cores * price * HOURS_PER_MONTH) : '–');
}

// The figures of the target in force, once they are of a whole window.
function showMeasured(target, { cores, p99, rate, isWhole }) {
  if (target !== null && isWhole) measured.set(target, { cores, p99, rate });
  byId('measured-box').hidden = measured.size < 2;
  const rows = [...measured].sort(([one], [other]) => one - other);
  fill('measured', [['target', NUMBER], ['cores', NUMBER], ['p99', NUMBER], ['at rows per second', NUMBER]],
    rows.map(([ms, seen]) => [milliseconds(ms), digits(seen.cores, 3), milliseconds(seen.p99 ?? NaN), count(seen.rate)]));
  [...byId('measured').tBodies[0].rows].forEach((row, at) => row.classList.toggle('now', rows[at][0] === target));
}

try {
  const price = localStorage.getItem('price');
  if (price !== null) byId('price').value = price;
} catch { /* no storage: the default price */ }
byId('price').addEventListener('input', () => {
  try {
    localStorage.setItem('price', byId('price').value);
  } catch { /* as above */ }
  if (state.cores !== undefined) showCost(state.cores);
});
