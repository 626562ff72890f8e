// The plan as a graph: sources on the left, sinks on the right.

const SVG = 'http://www.w3.org/2000/svg';
const BOX = { width: 176, height: 74, across: 70, down: 22 };
let drawn;

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// How many steps each node is behind the sources that are furthest away. Inputs come before their nodes.
function columns(nodes) {
  const column = [];
  for (const node of nodes) {
    const inputs = node.inputs.map((input) => column[input.from] + 1);
    column[node.node] = Math.max(0, ...inputs);
  }
  return column;
}

function instancesOf(plan) {
  const instances = [];
  for (const subquery of plan.subqueries) {
    for (const node of subquery.nodes) instances[node] = subquery.instances;
  }
  return instances;
}

function drawPlan(plan) {
  const nodes = plan.query;
  const [column, instances] = [columns(nodes), instancesOf(plan)];
  const rows = [];
  const places = nodes.map((node) => {
    const at = column[node.node];
    rows[at] = (rows[at] ?? -1) + 1;
    return { x: 8 + at * (BOX.width + BOX.across), y: 8 + rows[at] * (BOX.height + BOX.down) };
  });
  const width = 16 + rows.length * (BOX.width + BOX.across) - BOX.across;
  const height = 16 + (Math.max(...rows) + 1) * (BOX.height + BOX.down) - BOX.down;
  const picture = svg('svg', {
    class: 'plan', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Plan of the query',
  });
  const [edges, boxes] = [[], []];
  for (const node of nodes) {
    for (const input of node.inputs) {
      const [from, to] = [places[input.from], places[node.node]];
      const [x1, y1] = [from.x + BOX.width, from.y + BOX.height / 2];
      const [x2, y2] = [to.x, to.y + BOX.height / 2];
      const middle = (x1 + x2) / 2;
      picture.append(
        svg('path', { class: 'arrow', d: `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2 - 6},${y2}` }),
        svg('path', { class: 'tip', d: `M${x2},${y2} l-8,-4 v8 z` }),
      );
      const rate = svg('text', { class: 'dim', x: x2 - 10, y: y2 - 7, 'text-anchor': 'end' });
      const how = svg('title', {}, `${input.exchange || 'passed on as a call'}, ${input.changes}`);
      const waits = svg('text', { class: 'waits', x: x2 - 10, y: y2 + 16, 'text-anchor': 'end' });
      picture.append(rate, waits);
      edges.push({ to: node.node, isOnly: node.inputs.length === 1, rate, waits, how });
    }
  }
  for (const node of nodes) {
    const { x, y } = places[node.node];
    const many = instances[node.node] > 1 ? ` × ${instances[node.node]}` : '';
    const figures = svg('text', { class: 'dim', x: x + 10, y: y + 52 });
    const busy = svg('rect', { class: 'busy', x: x + 10, y: y + 60, width: 0, height: 5, rx: 2 });
    const title = svg('title', {}, `${node.name} #${node.node}${many}: ${node.detail}`);
    picture.append(svg('g', {},
      title,
      svg('rect', { class: 'box', x, y, width: BOX.width, height: BOX.height, rx: 6 }),
      svg('text', { class: 'name', x: x + 10, y: y + 19 }, cut(`${node.name} #${node.node}${many}`, 24)),
      svg('text', { class: 'dim', x: x + 10, y: y + 36 }, cut(node.detail, 26)),
      figures,
      svg('rect', { class: 'bar', x: x + 10, y: y + 60, width: BOX.width - 20, height: 5, rx: 2 }),
      busy,
    ));
    boxes.push({ figures, busy, instances: instances[node.node] || 1 });
  }
  byId('graph').replaceChildren(picture);
  drawn = { picture, edges, boxes };
}

// The rows per second, the busy share of a core and the rows that wait, of each node.
function showPlan(flow) {
  if (!drawn) return;
  drawn.boxes.forEach((box, node) => {
    const { rate, busy } = flow[node] || {};
    say(box.figures, rate === undefined ? '' : `${count(rate)} rows/s · ${percent(busy)} busy`);
    const share = Math.min(1, (busy || 0) / box.instances);
    box.busy.setAttribute('width', ((BOX.width - 20) * share).toFixed(1));
  });
  for (const edge of drawn.edges) {
    const { rate, waiting } = flow[edge.to] || {};
    // Which of several inputs rows came from is not counted.
    say(edge.rate, edge.isOnly && rate !== undefined ? `${short(rate)}/s` : '');
    say(edge.waits, waiting > 0 ? `${short(waiting)} wait` : '');
  }
}
