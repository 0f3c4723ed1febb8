// What limits each link, as `ropewalk why` says.

// Seconds between two judgements, each of which takes two.
const WHY_PAUSE = 5;

function verdict(link) {
  const said = (way, one) => make("p", "", `${way}${one.factor}: ${one.why}`);
  const same = link.up.factor === link.down.factor && link.up.why === link.down.why;
  const lines = same ? [said("", link.up)] : [said("↓ ", link.down), said("↑ ", link.up)];
  // Over what it goes, where that is not UDP.
  const carried = link.carried ? [make("p", "", link.carried)] : [];
  const model = link.model ? [make("p", "faint", link.model)] : [];
  return make("div", "verdict", "", make("h3", "", link.name), ...carried, ...lines, ...model);
}

function judged(tunnel, isOne) {
  const title = isOne ? [] : [make("h3", "", tunnel.peer)];
  const all = [["all down", tunnel.down], ["all up", tunnel.up]].map(([name, bundle]) => make("p", "", `${name}: ${bundle.why}`));
  const notes = [tunnel.repair, tunnel.redundancy].filter(Boolean).map((note) => make("p", "", note));
  return make("div", "", "", ...title, ...tunnel.links.map(verdict), ...all, ...notes);
}

function showWhy(report) {
  const tunnels = report.tunnels.filter((tunnel) => tunnel.links.length > 0);
  byId("why").hidden = tunnels.length === 0;
  byId("why-over").textContent = `over the last ${report.over_s.toFixed(1)} s`;
  byId("verdicts").replaceChildren(...tunnels.map((tunnel) => judged(tunnel, tunnels.length === 1)));
}

async function askWhy() {
  if (!document.hidden) {
    // A daemon that does not answer is told of above.
    try { showWhy(await get("/v1/why")); } catch { byId("why").hidden = true; }
  }
  setTimeout(askWhy, WHY_PAUSE * 1000);
}
askWhy();
