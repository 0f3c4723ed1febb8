// What was carried over the last hour, day or month, each link stacked on the others, and what happened.

// Seconds, and whether the table has all days.
const RANGES = { hour: [3600, false], day: [86400, false], month: [31 * 86400, true] };
// Seconds between two questions; points, events and colours at most; days of the table where the month is not asked for; the most
// days of a chart whose ends have a time beside the day.
const PAST_PAUSE = 15, POINTS = 240, EVENTS = 60, COLOURS = 8, FEW_DAYS = 3, TIMED_DAYS = 3;
let range = "day", pastTimer = null;

const SVG = "http://www.w3.org/2000/svg";
function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// From where to where each value of a link reaches, upon what is below it; what is not known has no place.
function stacked(values, below) {
  return values.map((value, place) => {
    if (value === null) return null;
    const low = below[place];
    below[place] += value;
    return [low, below[place]];
  });
}

// The outline of what is known: over the tops to the right, under the bottoms back.
function outline(area, top) {
  const y = (value) => (100 - 98 * value / top).toFixed(1);
  let path = "";
  for (let from = 0; from < area.length; from += 1) {
    let to = from;
    while (to < area.length && area[to] !== null) to += 1;
    if (to === from) continue;
    const run = area.slice(from, to);
    path += `M${from} ${y(run[0][1])}` + run.map(([, high], place) => `V${y(high)}H${from + place + 1}`).join("");
    path += run.reverse().map(([low], place) => `V${y(low)}H${to - place - 1}`).join("") + "Z";
    from = to;
  }
  return path;
}

// A proxy knows all together only.
const series = (report) => (report.links.length > 0 ? report.links : [{ name: "all clients", rtt_ms: [], loss: [], ...report.all }]);

function chart(title, way, report) {
  const all = series(report), below = report.all[way].map(() => 0);
  const areas = all.map((one) => stacked(one[way], below));
  const top = Math.max(LEAST_TOP, ...below);
  const label = `${title}, full height ${rate(top)}`;
  const picture = shape("svg", { viewBox: `0 0 ${below.length} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  areas.forEach((area, place) => picture.append(shape("path", { class: `c${place % COLOURS}`, d: outline(area, top) })));
  return make("div", "chart", "", make("p", "faint", label), picture);
}

function mean(values, shown) {
  const known = values.filter((value) => value !== null);
  return known.length > 0 ? shown(known.reduce((sum, value) => sum + value, 0) / known.length) : "";
}

function legend(report) {
  const keys = series(report).map((one, place) => {
    const trip = mean(one.rtt_ms, (time) => `RTT ${millis(time)}`), lost = mean(one.loss, (share) => `loss ${percent(share)}`);
    const text = [`${one.name}: ${size(one.down_bytes)} ↓ ${size(one.up_bytes)} ↑`, trip, lost].filter(Boolean).join(", ");
    return make("p", "key", "", make("span", `swatch c${place % COLOURS}`), text);
  });
  return make("div", "keys", "", ...keys);
}

// What was used on each day, both ways together, the newest first.
function usedTable(report) {
  const days = report.used.slice(RANGES[range][1] ? 0 : -FEW_DAYS).reverse();
  const names = [...new Set(days.flatMap((day) => day.links.map((link) => link.name)))].sort();
  const bytes = (used) => (used ? size(used.down_bytes + used.up_bytes) : unknown);
  const row = (cell, texts) => make("tr", "", "", ...texts.map((text) => make(cell, "", text)));
  const rows = days.map((day) => row("td", [day.day, bytes(day.all), ...names.map((name) => bytes(day.links.find((link) => link.name === name)))]));
  return make("div", "scroll", "", make("table", "", "", row("th", ["used on", "packets", ...names]), ...rows));
}

function happened(event) {
  const when = new Date(event.at * 1000).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const what = [event.link, event.kind.replaceAll("-", " ")].filter(Boolean).join(": ");
  return make("p", "", "", make("span", "faint", when), ` ${what}${event.text ? `: ${event.text}` : ""}`);
}

// Where the charts begin and end: a time says nothing without its day where the days differ, and little over many days.
function ends(from, to) {
  const [first, last] = [from, to].map((seconds) => new Date(seconds * 1000));
  const day = { month: "short", day: "numeric" }, time = { hour: "2-digit", minute: "2-digit" };
  const sameDay = first.toDateString() === last.toDateString();
  const parts = to - from > TIMED_DAYS * 86400 ? day : sameDay ? time : { ...day, ...time };
  return [first, last].map((moment) => moment.toLocaleString([], parts));
}

function showPast(report) {
  const off = report.history.state === "off";
  byId("charts").removeAttribute("aria-busy");
  byId("past").hidden = false;
  byId("past-note").textContent = [off ? "Nothing is remembered: `days` in [history] of the config is 0." : "", report.history.trouble,
    report.history.state === "no-clock" ? "Nothing has a date before this machine's clock is set." : ""].filter(Boolean).join(" ");
  if (off || report.all.down_bps.length === 0) return byId("charts").replaceChildren();
  const [first, last] = ends(report.from, report.now);
  const axis = make("div", "head faint", "", make("span", "", first),
    make("span", "", `a point is ${span(report.step_s)}`), make("span", "", last));
  const events = report.events.length > 0 ? report.events.map(happened) : [make("p", "faint", "Nothing happened in this time.")];
  byId("charts").replaceChildren(chart("↓ down", "down_bps", report), chart("↑ up", "up_bps", report), axis, legend(report),
    usedTable(report), make("h3", "", "What happened"), ...events);
}

function chooseRange(name) {
  // What is there is of another time, until the answer comes.
  if (name !== range) byId("charts").setAttribute("aria-busy", "true");
  range = name;
  for (const button of byId("ranges").children) button.setAttribute("aria-pressed", String(button.textContent === name));
  clearTimeout(pastTimer);
  askPast();
}

async function askPast() {
  const asked = range;
  if (!document.hidden) {
    try {
      const report = await get(`/v1/history?since=${RANGES[asked][0]}&points=${POINTS}&events=${EVENTS}`);
      // Another one was chosen meanwhile, and asks for itself.
      if (asked !== range) return;
      showPast(report);
    } catch (error) {
      if (asked !== range) return;
      byId("past-note").textContent = error.message;
    }
  }
  clearTimeout(pastTimer);
  pastTimer = setTimeout(askPast, PAST_PAUSE * 1000);
}

byId("ranges").append(...Object.keys(RANGES).map((name) => {
  const button = make("button", "", name);
  button.addEventListener("click", () => chooseRange(name));
  return button;
}));
chooseRange(range);
