// What only a server has: several jobs, start, stop, drop, and a box for SQL.

function showServer() {
  byId('jobs-nav').hidden = !state.isServer;
  byId('sql').hidden = !state.isServer;
}
