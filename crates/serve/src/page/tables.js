// Tables: what was counted, as text.

// Fills a table; columns are pairs of a title and whether it has numbers, cells are text or elements.
function fill(id, columns, rows) {
  const table = byId(id);
  const signature = JSON.stringify(columns);
  if (table.dataset.columns !== signature) {
    table.dataset.columns = signature;
    const heads = columns.map(([title, kind]) => element('th', { scope: 'col', class: kind || '' }, title));
    table.replaceChildren(element('thead', {}, element('tr', {}, ...heads)), element('tbody'));
  }
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] || body.insertRow();
    cells.forEach((text, column) => {
      const cell = row.cells[column] || row.insertCell();
      const kind = columns[column][1] || '';
      if (cell.className !== kind) cell.className = kind;
      say(cell, String(text));
    });
    while (row.cells.length > cells.length) row.deleteCell(-1);
  });
}

const NUMBER = 'number';

function showTables(job, counts, flow) {
  const nodes = job.plan.query;
  fill('operators',
    [['operator'], ['what it does'], ['rows per second', NUMBER], ['busy', NUMBER], ['rows waiting', NUMBER], ['state', NUMBER]],
    nodes.map((node) => {
      const { rate, busy, waiting, state } = flow[node.node] || {};
      const waits = waiting === null || waiting === undefined ? '–' : count(waiting);
      return [`${node.name} #${node.node}`, node.detail, count(rate), percent(busy || 0), waits, bytes(state || 0)];
    }));
  showSources(counts, flow);
  fill('sinks',
    [['table'], ['rows', NUMBER], ['rows per second', NUMBER], ['p50', NUMBER], ['p99', NUMBER], ['target', NUMBER],
      ['target missed for', NUMBER]],
    counts.sinks.map((sink) => {
      const { rate, p50, p99 } = flow.sinks[sink.table] || {};
      const [target, missed] = [sink.target_ms, sink.target_ms === null ? '–' : span(sink.violated_s)];
      return [sink.table, count(sink.rows), count(rate), milliseconds(p50 ?? NaN), milliseconds(p99 ?? NaN),
        milliseconds(target ?? NaN), missed];
    }));
  fill('workers',
    [['worker', NUMBER], ['cores', NUMBER], ['wake-ups per second', NUMBER]],
    counts.workers.map((worker) => {
      const { cores, wakeups } = flow.workers[worker.worker] || {};
      return [worker.worker, digits(cores ?? NaN, 3), count(wakeups)];
    }));
  showFacts(counts);
}

function showSources(counts, flow) {
  const rows = counts.sources.map((source) => [
    source.table, count(source.rows), count(flow.sources[source.table]?.rate), count(source.late), count(source.bad),
    source.watermark_ms === null ? 'none yet' : eventTime(source.watermark_ms), count(source.connections_lost),
  ]);
  if (counts.late_elsewhere + counts.bad_elsewhere > 0) {
    rows.push(['no single table', '–', '–', count(counts.late_elsewhere), count(counts.bad_elsewhere), '–', '–']);
  }
  fill('sources',
    [['table'], ['rows', NUMBER], ['rows per second', NUMBER], ['late', NUMBER], ['bad', NUMBER], ['watermark'],
      ['connections lost', NUMBER]], rows);
  const partitions = counts.partitions || [];
  byId('partitions-box').hidden = partitions.length === 0;
  const left = counts.partitions_left_out || 0;
  say('partitions-left', left > 0 ? `${count(left)} more, with no more late rows` : '');
  fill('partitions',
    [['table'], ['partition'], ['state'], ['rows', NUMBER], ['late', NUMBER], ['watermark'], ['silent for', NUMBER]],
    partitions.map((partition) => [
      partition.table, partition.name, partition.holds_back ? `${partition.state}, holds the others back` : partition.state,
      count(partition.rows), count(partition.rows_late), partition.watermark ?? 'none yet',
      partition.silent_s === null ? '–' : span(partition.silent_s),
    ]));
  byId('bad-box').hidden = counts.bad_rows.length === 0;
  fill('bad', [['table'], ['place'], ['reason'], ['record', 'record']],
    counts.bad_rows.map((row) => [row.table, row.place, row.reason, row.record]));
  const diagnosis = counts.diagnosis || [];
  byId('diagnosis').hidden = diagnosis.length === 0;
  if (byId('diagnosis').dataset.said !== diagnosis.join(' ')) {
    byId('diagnosis').dataset.said = diagnosis.join(' ');
    byId('diagnosis').replaceChildren(...diagnosis.map((sentence) => element('li', {}, sentence)));
  }
}

function showFacts(counts) {
  const facts = [['Memory', bytes(counts.resident_bytes)], ['Restarts', count(counts.restarts)]];
  const taken = counts.checkpoints;
  if (taken) {
    const mean = taken.stored > 0 ? taken.total_s / taken.stored : NaN;
    const last = taken.last_s === null ? 'none yet' : `${span(Date.now() / 1000 - taken.last_s)} ago`;
    facts.push(['Checkpoints', `${count(taken.stored)} stored, ${count(taken.aborted)} aborted`], ['Last one', last],
      ['Duration, on average', milliseconds(mean * 1000)],
      ['Size, on average', taken.stored > 0 ? bytes(taken.bytes / taken.stored) : '–']);
  } else {
    facts.push(['Checkpoints', 'none: the query runs without --state']);
  }
  const items = facts.map(([name, value]) =>
    element('div', {}, element('dt', {}, name), element('dd', {}, value)));
  byId('facts').replaceChildren(...items);
}
