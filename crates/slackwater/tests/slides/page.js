// Checks the page's functions: node page.js PAGE ADDRESS, with a server of a slide of 700 x 531 pixels.
"use strict";
const assert = require("node:assert");
const { readFileSync } = require("node:fs");

const script = readFileSync(process.argv[2], "utf8").match(/<script>([^]*)<\/script>/)[1];
const page = { exports: {} };
new Function("module", script)(page);
const { exposed, inside, rgba, rows } = page.exports;

const area = (parts) => parts.reduce((sum, part) => sum + part.width * part.height, 0);
assert.deepStrictEqual(exposed(100, 50, 0, 0), []);
assert.deepStrictEqual(exposed(100, 50, 10, 0), [{ x: 90, y: 0, width: 10, height: 50 }]);
assert.deepStrictEqual(exposed(100, 50, -10, 5),
  [{ x: 0, y: 0, width: 10, height: 50 }, { x: 10, y: 45, width: 90, height: 5 }]);
assert.deepStrictEqual(exposed(100, 50, 0, 60), [{ x: 0, y: 0, width: 100, height: 50 }]);
for (const [dx, dy] of [[3, 4], [-3, 4], [3, -4], [-99, -49]]) {
  assert.strictEqual(area(exposed(100, 50, dx, dy)), 5000 - (100 - Math.abs(dx)) * (50 - Math.abs(dy)));
}
const slide = { width: 700, height: 531 };
assert.deepStrictEqual(inside(slide, 1, { x: -5, y: 260, width: 10, height: 10 }),
  { x: 0, y: 260, width: 5, height: 5 });
assert.strictEqual(inside(slide, 1, { x: 350, y: 0, width: 10, height: 10 }), null);
assert.deepStrictEqual([...rgba("AQID/wAB", 2)], [1, 2, 3, 255, 255, 0, 1, 255]);

(async () => {
  const base = `http://${process.argv[3]}/view?viewer=node&kind=partial&level=0&x=0&y=0`, found = [];
  await rows(base + "&request=1&width=200&height=100", (row) => found.push(row));
  assert.strictEqual(found.length, 2);
  for (const row of found) {
    assert.strictEqual(row.error, null);
    assert.strictEqual(rgba(row.pixels, row.width * row.height).length, row.width * row.height * 4);
  }
  assert.strictEqual(found.reduce((sum, row) => sum + row.width * row.height, 0), 200 * 100);
  await assert.rejects(rows(base + "&request=2", () => {}), /the parameter 'width' is missing/);
  console.log("checked");
})();
