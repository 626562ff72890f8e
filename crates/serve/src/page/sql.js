// A box for SQL.

// The most rows that are shown: of an answer the first, of changes the last.
const ROWS_MAX = 200;
// Rows that come one after the other are drawn together.
const DRAW_MS = 250;
const NUMBERS = /^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)/;
let running;

// Numbers keep the digits that the server wrote: JavaScript has 53 bits for them.
const asWritten = (line) =>
  JSON.parse(line, (_, value, context) => (typeof value === 'number' && context?.source) || value);

const cellOf = (value) => {
  if (value === null || value === undefined) return 'NULL';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
};

// Shows the lines of an answer: columns, rows, and how each statement ended.
class AnswerBox {
  constructor(text) {
    [this.columns, this.rows, this.all, this.done] = [[], [], 0, []];
    this.subscribes = /\bSUBSCRIBE\b/i.test(text);
    this.draw();
    say('sql-done', '');
    say('sql-error', '');
    say('sql-place', '');
  }

  hear(line) {
    if (line.columns) {
      [this.columns, this.rows, this.all] = [line.columns, [], 0];
      this.areChanges = this.subscribes && line.columns[0]?.name === 'op';
    }
    if (line.row) {
      this.all += 1;
      if (this.areChanges) this.rows.unshift(line.row);
      if (!this.areChanges && this.rows.length < ROWS_MAX) this.rows.push(line.row);
      if (this.rows.length > ROWS_MAX) this.rows.pop();
    }
    // How many rows there were is said with them.
    const tag = /^SELECT \d+$/.test(line.done) ? undefined : line.done;
    const said = [tag, ...(line.notices || [])].filter((text) => text !== undefined);
    if (said.length > 0) this.done.push(said.join('\n  '));
    if (line.error) showError(line.error);
    this.drawing ??= setTimeout(() => this.draw(), DRAW_MS);
  }

  draw() {
    clearTimeout(this.drawing);
    this.drawing = undefined;
    byId('rows-box').hidden = this.columns.length === 0;
    fill('rows', this.columns.map(({ name, type }) => [name, NUMBERS.test(type) ? 'number' : '']),
      this.rows.map((row) => this.columns.map(({ name }) => cellOf(row[name]))));
    [...byId('rows').tBodies[0].rows].forEach((row, at) => {
      row.className = !this.areChanges ? '' : this.rows[at].op.startsWith('+') ? 'added' : 'removed';
    });
    say('sql-done', this.done.join('\n'));
    if (this.columns.length > 0) say('sql-said', this.inWords());
  }

  inWords() {
    const [all, shown] = [Number(this.all), this.rows.length];
    const noun = this.areChanges ? 'change' : 'row';
    const counted = `${count(all)} ${noun}${all === 1 ? '' : 's'}`;
    if (this.areChanges) return `${counted}${shown < all ? `; the last ${shown}` : ''}, the newest first:`;
    return shown < all ? `${counted}; the first ${shown}:` : `${counted}.`;
  }
}

// Says what is wrong, shows the line, and marks the place in the statement.
function showError({ message, hint, position }) {
  const place = Number(position);
  const text = byId('sql-text');
  let where = '';
  if (position !== undefined && Number.isInteger(place) && text.value === state.sent) {
    // The server counts characters, JavaScript counts UTF-16 units.
    const before = [...text.value].slice(0, place).join('');
    const lines = before.split('\n');
    const line = text.value.split('\n')[lines.length - 1];
    const column = lines[lines.length - 1].length;
    const from = Math.max(0, column - 40);
    where = `Line ${lines.length}, column ${column + 1}: `;
    say('sql-place', `${line.slice(from, column + 40)}\n${' '.repeat(column - from)}^`);
    const word = /^("[^"]*"|`[^`]*`|'[^']*'|[\p{L}\p{N}_]+|.)?/su.exec(text.value.slice(before.length))[0];
    text.focus();
    text.setSelectionRange(before.length, before.length + word.length);
  }
  text.setAttribute('aria-invalid', 'true');
  say('sql-error', `${where}${message}${hint ? `\n${hint}` : ''}`);
}

function runText(text) {
  byId('sql-text').value = text;
  byId('sql').scrollIntoView({ block: 'nearest' });
  runSql();
}

async function runSql() {
  running?.abort();
  const own = new AbortController();
  running = own;
  const text = byId('sql-text').value;
  state.sent = text;
  try {
    sessionStorage.setItem('sql', text);
  } catch { /* it is not kept */ }
  const before = state.jobs.map((job) => job.name);
  byId('sql-text').removeAttribute('aria-invalid');
  byId('sql-end').disabled = false;
  const box = new AnswerBox(text);
  say('sql-said', 'Running.');
  let ended = '';
  try {
    const response = await ask('/v1/sql?format=lines', {
      method: 'POST', headers: { 'content-type': 'text/plain' }, body: text, signal: own.signal,
    });
    await readLines(response, (line) => box.hear(asWritten(line)));
  } catch (error) {
    if (own.signal.aborted) ended = 'Ended. ';
    else if (error instanceof Refused) error.lines.forEach((line) => box.hear(asWritten(line)));
    else showError({ message: `The answer broke off: ${error.message}.` });
  }
  if (running !== own) return clearTimeout(box.drawing);
  say('sql-said', '');
  box.draw();
  if (ended) say('sql-said', ended + byId('sql-said').textContent);
  if (byId('sql-end') === document.activeElement) byId('sql-text').focus();
  byId('sql-end').disabled = true;
  await lookAnew();
  // A job that was created is shown.
  const created = state.jobs.map((job) => job.name).filter((name) => !before.includes(name));
  if (created.length > 0 && before.length > 0) location.hash = `job=${encodeURIComponent(created[0])}`;
}

async function readLines(response, hearLine) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value || '')).split('\n');
    rest = done ? '' : lines.pop();
    lines.filter((line) => line.trim()).forEach(hearLine);
    if (done) return;
  }
}

byId('sql-form').addEventListener('submit', (event) => {
  event.preventDefault();
  runSql();
});
byId('sql-end').addEventListener('click', () => running?.abort());
byId('sql-text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    runSql();
  }
});
byId('sql-text').value = remembered('sql') ?? '';

byId('example').addEventListener('click', () => {
  byId('sql-text').value = `-- Visits of a web site, and how many there were of each address.
CREATE TABLE visits (ts_ms BIGINT, ip STRING,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rate' = '1000/s');

CREATE MATERIALIZED VIEW busy AS SELECT ip, COUNT(*) AS visits FROM visits GROUP BY ip;
SELECT * FROM busy ORDER BY visits DESC LIMIT 3;`;
  byId('sql-text').focus();
});
