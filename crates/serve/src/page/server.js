// What only a server has: several jobs, start, stop, drop, and a box for SQL.

// The most rows that are shown of an answer; of changes, the last ones.
const ROWS_MAX = 200;
let running;

function showServer() {
  byId('jobs-nav').hidden = !state.isServer;
  byId('sql').hidden = !state.isServer;
  if (!state.isServer) return;
  const buttons = state.jobs.map((job) => {
    const button = element('button', { type: 'button', 'aria-current': String(job.name === state.name) },
      `${job.name} (${job.status})`);
    button.addEventListener('click', () => {
      state.name = job.name;
      begin();
    });
    return element('li', {}, button);
  });
  byId('jobs').replaceChildren(...buttons);
  const status = state.jobs.find((job) => job.name === state.name)?.status;
  byId('start').disabled = status === 'running' || status === 'starting';
  byId('stop').disabled = status !== 'running';
  byId('drop').disabled = status === undefined;
}

async function changeJob(method, change) {
  try {
    const path = `/v1/jobs/${encodeURIComponent(state.name)}`;
    await (change ? sendJson(method, path, change) : ask(path, { method }));
    say('problem', '');
  } catch (error) {
    say('problem', error.message);
  }
  begin();
}

byId('start').addEventListener('click', () => changeJob('PATCH', { status: 'running' }));
byId('stop').addEventListener('click', () => changeJob('PATCH', { status: 'stopped' }));
byId('drop').addEventListener('click', () => {
  if (confirm(`Drop ${state.name} and its state?`)) changeJob('DELETE');
});

// Shows the lines of an answer: columns, rows, and how each statement ended.
function answerBox() {
  let [columns, rows, all] = [[], [], 0];
  const draw = () => {
    fill('rows', columns.map((column) => [column.name]), rows.map((row) =>
      columns.map((column) => (row[column.name] === null ? 'NULL' : typeof row[column.name] === 'object'
        ? JSON.stringify(row[column.name]) : String(row[column.name])))));
  };
  let drawing;
  return (line) => {
    if (line.columns) [columns, rows, all] = [line.columns, [], 0];
    if (line.row) {
      all += 1;
      rows.push(line.row);
      if (rows.length > ROWS_MAX) rows.shift();
      say('sql-said', all > rows.length ? `${count(all)} rows, the last ${rows.length} of them:` : `${count(all)} rows`);
    }
    if (line.done !== undefined) say('sql-said', [line.done, ...(line.notices || [])].join('. '));
    if (line.error) say('sql-said', `Error: ${line.error.message}${line.error.hint ? ` (${line.error.hint})` : ''}`);
    // Many rows in a moment are drawn once.
    drawing ??= requestAnimationFrame(() => {
      drawing = undefined;
      draw();
    });
  };
}

async function runSql() {
  running?.abort();
  const own = new AbortController();
  running = own;
  byId('sql-end').disabled = false;
  say('sql-said', 'Running.');
  try {
    const response = await ask('/v1/sql?format=lines', {
      method: 'POST', headers: { 'content-type': 'text/plain' }, body: byId('sql-text').value, signal: own.signal,
    });
    const show = answerBox();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      const lines = (rest + (value || '')).split('\n');
      rest = done ? '' : lines.pop();
      lines.filter((line) => line.trim()).forEach((line) => show(JSON.parse(line)));
      if (done) break;
    }
  } catch (error) {
    say('sql-said', own.signal.aborted ? 'Ended.' : `Error: ${error.message}`);
  }
  if (running === own) byId('sql-end').disabled = true;
  begin();
}

byId('sql-form').addEventListener('submit', (event) => {
  event.preventDefault();
  runSql();
});
byId('sql-end').addEventListener('click', () => running?.abort());
byId('sql-text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) runSql();
});
