// Asks for the jobs, chooses one, listens to it, and connects again when the server was away.

// How often a server is asked for its jobs, and one that is away whether it is back.
const AGAIN_MS = 2000;
const PATIENCE_MS = 10_000;
let asking;
let again;

// Looks at the jobs now; one look at a time.
function look() {
  asking ??= lookOnce().finally(() => { asking = undefined; });
  return asking;
}

// The same after something was changed: a look that has begun before may not have seen it.
async function lookAnew() {
  await asking;
  await look();
}

async function lookOnce() {
  clearTimeout(again);
  if (document.hidden) return;
  try {
    state.jobs = await askJson('/v1/jobs', { signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch (error) {
    return lost(error);
  }
  if (document.hidden) return;
  say('problem', '');
  lock(false);
  state.isServer = !state.jobs.some((job) => job.is_run);
  choose();
  follow();
  showServer();
  if (state.isServer || !state.listening) again = setTimeout(look, AGAIN_MS);
}

// The server does not answer, or not to us.
function lost(error) {
  hang();
  if (error instanceof Refused && error.status === 401) {
    say('problem', remembered('token') ? 'The token is wrong.' : '');
    return lock(true);
  }
  showStatus(state.isServer ? 'no connection' : 'gone');
  byId('main').classList.add('old');
  const nobody = state.isServer ? 'The server does not answer'
    : 'Nobody answers: the query has ended, or the server was stopped';
  const reason = error instanceof Refused ? error.message : nobody;
  say('problem', `${reason}. Asking again every ${AGAIN_MS / 1000} s.`);
  again = setTimeout(look, AGAIN_MS);
}

// Without the token there is nothing to see.
function lock(isLocked) {
  const form = byId('token-form');
  if (form.hidden === !isLocked) return;
  form.hidden = !isLocked;
  byId('main').hidden = isLocked;
  if (isLocked) {
    byId('server').hidden = true;
    byId('token').focus();
  }
}

byId('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  try {
    sessionStorage.setItem('token', byId('token').value);
  } catch { /* asked again the next time */ }
  byId('token').value = '';
  look();
});

// The job in the address, such as #job=busy: it can be kept as a bookmark.
function nameInAddress() {
  try {
    return location.hash.startsWith('#job=') ? decodeURIComponent(location.hash.slice(5)) : null;
  } catch {
    return null;
  }
}

// The job that was asked for, the one that was shown, or the first.
function choose() {
  const names = state.jobs.map((job) => job.name);
  const found = [nameInAddress(), state.name].find((name) => names.includes(name)) ?? names[0] ?? null;
  if (found === state.name) return;
  hang();
  [state.name, state.job, state.text] = [found, null, null];
  forget();
  forgetTarget();
  say('job-name', found ?? '');
  say('since', '');
  say('job-said', '');
  document.title = found === null ? 'Slackwater' : `${found} – Slackwater`;
  byId('graph').replaceChildren();
  delete byId('main').dataset.looks;
}

addEventListener('hashchange', () => {
  if (nameInAddress() !== null) lookAnew();
});

const jobNow = () => state.jobs.find((job) => job.name === state.name);

// Listens to the job if it has something to say.
function follow() {
  const job = jobNow();
  const speaks = job && (job.is_run || (job.process !== null && job.status !== 'starting'));
  if (!speaks) hang();
  else if (!state.listening) listenTo(job.name);
}

function hang() {
  state.listening?.abort();
  state.listening = null;
}

function listenTo(name) {
  const own = new AbortController();
  state.listening = own;
  const ended = (error) => {
    if (own.signal.aborted) return;
    state.listening = null;
    // The list says how the job is, and whether the server answers.
    if (state.isServer) again = setTimeout(look, AGAIN_MS / 4);
    else lost(error ?? new Error('the end'));
  };
  const path = `/v1/jobs/${encodeURIComponent(name)}/events`;
  listen(path, own.signal, (event, data) => own.signal.aborted || hear(event, data)).then(ended, ended);
}

function hear(event, data) {
  if (event === 'job') {
    byId('main').classList.remove('old');
    const text = JSON.stringify(data);
    // The same as before the tab was hidden.
    if (text === state.text) return;
    [state.job, state.text] = [data, text];
    forget();
    say('version', `Slackwater ${data.version}`);
    byId('live').hidden = false;
    drawPlan(data.plan);
  } else if (event === 'counts' && state.job) {
    showCounts(data);
  }
}

// A page that nobody sees asks for nothing.
document.addEventListener('visibilitychange', () => {
  clearTimeout(again);
  if (document.hidden) hang();
  else look();
});
look();
