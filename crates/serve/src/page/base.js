// Helpers: elements, numbers as text, and requests.

const byId = (id) => document.getElementById(id);

// An element with attributes and children; strings become text, never markup.
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function say(id, text) {
  const place = typeof id === 'string' ? byId(id) : id;
  if (place.textContent !== text) place.textContent = text;
}

// Numbers as text, in the same way wherever the reader is, as in the program's own output.
const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const count = (number) => (number === null || number === undefined ? '–' : whole.format(number));

function digits(number, most) {
  if (!Number.isFinite(number)) return '–';
  if (number === 0) return '0';
  const before = Math.max(0, Math.floor(Math.log10(Math.abs(number))) + 1);
  return number.toLocaleString('en-US', { maximumFractionDigits: Math.max(0, Math.min(most, 3 - before)) });
}

function milliseconds(ms) {
  if (!Number.isFinite(ms)) return '–';
  return ms >= 1000 ? `${digits(ms / 1000, 2)} s` : `${digits(ms, 2)} ms`;
}

function span(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  const total = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(total / 3600), Math.floor(total / 60) % 60];
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${total % 60} s` : `${total} s`;
}

function bytes(number) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${digits(number, 1)} ${units[unit]}`;
}

// The event time as in the program's output: UTC, without a zone.
function eventTime(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return `${ms} ms`;
  return date.toISOString().replace('T', ' ').replace('Z', '').replace(/\.000$/, '');
}

const percent = (share) => `${digits(share * 100, 1)} %`;

class Refused extends Error {
  constructor(status, reason, hint, lines) {
    super(hint ? `${reason} (${hint})` : reason);
    [this.status, this.lines] = [status, lines];
  }
}

const remembered = (key) => {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
};

// A request; throws Refused with the server's words.
async function ask(path, options = {}) {
  const headers = { ...options.headers };
  const token = remembered('token');
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: 'no-store' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    // The browser's words name neither the server nor a reason.
    throw new Error('the server does not answer', { cause: error });
  }
  if (response.ok) return response;
  const text = await response.text();
  // What was done before the error comes in lines before it.
  const lines = text.split('\n').filter((line) => line.trim());
  let said = {};
  try {
    said = JSON.parse(lines[lines.length - 1]);
  } catch {
    lines.splice(0, lines.length, JSON.stringify({ error: { message: text.trim() || response.statusText } }));
  }
  const reason = said.error?.message || said.error || said.message || text.trim() || response.statusText;
  throw new Refused(response.status, reason, said.hint || said.error?.hint, lines);
}

const askJson = async (path, options) => (await ask(path, options)).json();

const sendJson = (method, path, body) =>
  ask(path, { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

// Hears a stream of events until it ends; EventSource can't show a token.
async function listen(path, signal, hear, options = {}) {
  const response = await ask(path, { ...options, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) {
      let [name, data] = ['message', ''];
      for (const line of block.split('\n')) {
        if (line.startsWith('event:')) name = line.slice(6).trim();
        else if (line.startsWith('data:')) data += line.slice(5).trim();
      }
      if (data) hear(name, JSON.parse(data));
    }
  }
}
