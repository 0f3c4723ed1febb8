// The devices behind a client that shares its tunnel, as `ropewalk devices` shows them.

// Seconds between two questions, and between two where there are no devices.
const DEVICES_PAUSE = 2, NO_DEVICES_PAUSE = 30;

function lan(one) {
  const state = make("span");
  showState(state, one.dhcp);
  if (one.dhcp === "on") state.className = "state good";
  if (one.dhcp === "failed") state.className = "state bad";
  const facts = [one.address, one.prefix, one.dhcp === "on" && `${one.leases} addresses lent`, one.trouble].filter(Boolean).join(" · ");
  return make("div", "", "", make("div", "head", "", make("h3", "", one.interface), state), make("p", "faint", facts));
}

function limitOf(device) {
  const limit = device.limit;
  if (!limit) return "";
  return [limit.down_bps !== undefined && `${rate(limit.down_bps)} ↓`, limit.up_bps !== undefined && `${rate(limit.up_bps)} ↑`]
    .filter(Boolean).join(", ");
}

function showDevices(report) {
  byId("devices").hidden = report.lans.length === 0;
  byId("devices-over").textContent = report.rates_over_s === undefined ? "" : `rates over ${report.rates_over_s.toFixed(1)} s`;
  byId("lans").replaceChildren(...report.lans.map(lan));
  const row = (cell, texts) => make("tr", "", "", ...texts.map((text) => make(cell, "", text)));
  const rows = report.devices.map((one) => row("td", [one.name || one.addresses[0] || unknown, one.addresses.join(", "),
    or(one.down.rate_bps, rate), or(one.up.rate_bps, rate), size(one.down.bytes), size(one.up.bytes), limitOf(one)]));
  const more = report.left_out > 0 ? [make("p", "faint", `and ${report.left_out} more with less traffic`)] : [];
  byId("device-list").replaceChildren(...(rows.length === 0 ? [make("p", "faint", "None has sent or received anything yet.")]
    : [make("table", "", "", row("th", ["device", "addresses", "↓ now", "↑ now", "↓ in all", "↑ in all", "limit"]), ...rows), ...more]));
}

async function askDevices() {
  let pause = NO_DEVICES_PAUSE;
  if (!document.hidden) {
    try {
      const report = await get("/v1/devices");
      showDevices(report);
      if (report.lans.length > 0) pause = DEVICES_PAUSE;
    } catch {
      // A proxy has none, and a daemon that does not answer is told of above.
      byId("devices").hidden = true;
    }
  }
  setTimeout(askDevices, pause * 1000);
}
askDevices();
