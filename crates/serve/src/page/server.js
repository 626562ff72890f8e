// What only a server has: several jobs, and buttons to start, stop and drop them.

const IN_WORDS = {
  starting: 'It is being started.',
  running: '',
  stopped: 'It is stopped. Its state is kept: Start continues where it was stopped.',
  finished: 'Its inputs have ended.',
  failed: 'Start tries again from its last checkpoint.',
};
const KINDS = { running: 'running', failed: 'gone', 'no connection': 'gone', gone: 'gone' };
let views = [];

function showStatus(status, place = byId('status')) {
  say(place, status);
  const kind = `pill ${KINDS[status] || ''}`;
  if (place.className !== kind) place.className = kind;
}

// The line below the name. A server knows better than its job whether that runs.
function showHead(status, since) {
  const job = jobNow();
  const isListed = state.isServer && !(job?.status === 'running' && status === 'restarting');
  showStatus(isListed ? job?.status ?? 'no job' : status);
  const words = [since, state.isServer && job?.process ? `process ${job.process}` : '',
    job?.starts > 1 ? `started ${count(job.starts)} times` : ''];
  say('since', words.filter(Boolean).join(', '));
}

// The list keeps its buttons, so that the one with the focus keeps it.
function showJobs() {
  const list = byId('jobs');
  while (list.children.length > state.jobs.length) list.lastChild.remove();
  state.jobs.forEach((job, at) => {
    let button = list.children[at]?.firstChild;
    if (!button) {
      button = element('button', { type: 'button' }, element('span', { class: 'job' }), ' ', element('span'));
      button.addEventListener('click', () => { location.hash = `job=${encodeURIComponent(button.value)}`; });
      list.append(element('li', {}, button));
    }
    button.value = job.name;
    button.title = job.name;
    say(button.firstChild, job.name);
    showStatus(job.status, button.lastChild);
    const isShown = String(job.name === state.name);
    if (button.getAttribute('aria-current') !== isShown) button.setAttribute('aria-current', isShown);
  });
  byId('no-jobs').hidden = state.jobs.length > 0;
}

function showServer() {
  byId('server').hidden = !state.isServer;
  byId('job-buttons').hidden = !state.isServer;
  if (!state.isServer) return;
  showJobs();
  const job = jobNow();
  byId('main').hidden = !job;
  if (!job) return;
  byId('main').classList.toggle('old', !state.listening);
  const isLive = Boolean(state.listening);
  if (!isLive) {
    byId('live').hidden = true;
    state.text = null;
    showHead(job.status, '');
  } else if (state.seen.length === 0) {
    showStatus(job.status);
  }
  say('reason', job.reason ?? '');
  say('in-words', isLive && job.status !== 'finished' ? '' : IN_WORDS[job.status] ?? '');
  // Without a process it may run, too: it has died, and is about to be replaced. The process of a finished view
  // stays, for its rows.
  const runs = job.status === 'running' || job.status === 'starting' || job.process !== null;
  byId('start').disabled = runs;
  byId('stop').disabled = !runs;
  showViewButtons();
}

// Buttons for the rows of a materialized view.
async function showViewButtons() {
  const { name } = state;
  if (state.askedViews !== name) {
    state.askedViews = name;
    try {
      const all = await askJson('/v1/views');
      views = all.filter((view) => view.kind === 'materialized view').map((view) => view.name);
    } catch {
      state.askedViews = null;
    }
  }
  const isView = views.includes(state.name);
  byId('rows-of').hidden = !isView;
  byId('changes-of').hidden = !isView;
}

const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
byId('rows-of').addEventListener('click', () => runText(`SELECT * FROM ${quoted(state.name)} LIMIT 100`));
byId('changes-of').addEventListener('click', () => runText(`SUBSCRIBE ${quoted(state.name)}`));

async function changeJob(during, after, method, change) {
  const { name } = state;
  say('job-said', `${during} ${name}.`);
  const focused = document.activeElement;
  try {
    const path = `/v1/jobs/${encodeURIComponent(name)}`;
    await (change ? sendJson(method, path, change) : ask(path, { method }));
    await lookAnew();
    say('job-said', `${name} ${after}.`);
  } catch (error) {
    await lookAnew();
    say('job-said', `Error: ${error.message}`);
  }
  // A button that can't be pressed any more has lost the focus.
  if (focused.disabled) (byId('start').disabled ? byId('stop') : byId('start')).focus();
}

byId('start').addEventListener('click', () =>
  changeJob('Starting', 'was started', 'PATCH', { status: 'running' }));
byId('stop').addEventListener('click', () =>
  changeJob('Stopping', 'was stopped', 'PATCH', { status: 'stopped' }));
byId('drop').addEventListener('click', () => {
  const what = `Drop ${state.name}, with its state and its rows? This can't be undone.`;
  if (confirm(what)) changeJob('Dropping', 'was dropped', 'DELETE');
});
