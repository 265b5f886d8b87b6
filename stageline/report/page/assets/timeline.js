// One lane per stage: what it served when, and why it idled.
const LEAST_PIXELS = 1.5; // narrower services would blur: lanes show shares per slice instead
const SHARE_PIXELS = 4; // narrower columns would show a pattern of their own with the services that they cut
let lanes = [], shares = {}, selected = null;
const HINT = "Click a service, or press ↓, to see its microbatch and why the stage idled before it; n and p step to the next and previous one, + and − zoom, ← and → move.";
const chosenLane = () => selected ? selected.lane : 0;
const rowHeight = () => Math.max(4, Math.min(24, Math.floor(640 / data.stages.length)));

function visible(lane) {
  return [after(lane.ends, view.begin), Math.min(lane.n, after(lane.starts, view.end))];
}

function isExact() {
  if (view.end > data.window.exact_until_ns && data.window.exact_services < data.window.services) return false;
  const most = Math.max(...lanes.map(lane => { const [a, b] = visible(lane); return b - a; }));
  return most * LEAST_PIXELS <= element("timeline").clientWidth;
}

function drawTimeline(context, width, height) {
  const row = rowHeight(), exact = isExact();
  const named = Math.max(1, Math.ceil(13 / row));
  const palette = Object.fromEntries(data.categories.map(name => [name, colour(name)]));
  const services = [0, 1, 2].map(i => colour("service-" + i));
  timeAxis(context, width, height);
  data.stages.forEach((record, l) => {
    const y = l * row, h = row - (row > 7 ? 2 : 1);
    context.save();
    context.beginPath(); context.rect(GUTTER, y, width - GUTTER, row); context.clip();
    if (exact) exactLane(context, lanes[l], y, h, width, palette, services);
    else slicedLane(context, l, y, h, width, palette);
    context.restore();
    if (l % named === 0) {
      context.fillStyle = colour(selected && selected.lane === l ? "mark" : "quiet");
      context.textAlign = "right";
      context.fillText(laneName(record), GUTTER - 6, y + h / 2 + 4);
    }
  });
  if (selected) outlineSelected(context, width, row);
  element("range").textContent = `${instant(view.begin, view.end - view.begin)} to ${instant(view.end, view.end - view.begin)} (${duration(view.end - view.begin)}), ${exact ? "every service" : "shares per slice"}`;
}

function exactLane(context, lane, y, h, width, palette, services) {
  const [from, to] = visible(lane);
  for (let i = from; i < Math.min(lane.n, to + 1); i++) {
    let at = i ? lane.ends[i - 1] : 0;
    for (let p = lane.first[i]; p < lane.first[i + 1]; p++) {
      bar(context, at, at + lane.lengths[p], y, h, width, palette[data.categories[lane.causes[p]]]);
      at += lane.lengths[p];
    }
    if (i < to) bar(context, lane.starts[i], lane.ends[i], y, h, width, services[lane.numbers[i] % 3]);
  }
  if (to === lane.n) bar(context, lane.n ? lane.ends[lane.n - 1] : 0, whole, y, h, width, palette[lane.n ? "drain" : "fill"]);
}

function bar(context, begin, end, y, h, width, fill) {
  const x = xOf(begin, width);
  context.fillStyle = fill;
  context.fillRect(x, y, xOf(end, width) - x, h);
}

function slicedLane(context, l, y, h, width, palette) {
  const slice = data.window.slice_ns, n = data.window.slices;
  const from = Math.floor(view.begin / slice), to = Math.min(n, Math.ceil(view.end / slice));
  const per = Math.max(1, Math.ceil(SHARE_PIXELS * (to - from) / (width - GUTTER)));
  for (let i = Math.floor(from / per) * per; i < to; i += per) {
    const end = Math.min(n, i + per), x = xOf(i * slice, width), w = xOf(end * slice, width) - x + 0.5;
    let bottom = y + h;
    for (const name of data.categories) {
      if (!shares[name]) continue;
      let sum = 0;
      for (let k = i; k < end; k++) sum += shares[name][l * n + k];
      const part = sum / (end - i) / 255 * h;
      if (!part) continue;
      context.fillStyle = palette[name];
      context.fillRect(x, bottom - part, w, part);
      bottom -= part;
    }
  }
}

// Outlines the selected microbatch at every stage in view.
function outlineSelected(context, width, row) {
  const { lane: chosen, index } = selected, number = lanes[chosen].numbers[index];
  const replica = data.stages[chosen].replica;
  context.strokeStyle = colour("mark");
  context.lineWidth = 1.5;
  lanes.forEach((lane, l) => {
    if (lane.record.replica !== replica) return;
    const [from, to] = visible(lane);
    for (let i = from; i < to; i++) {
      if (lane.numbers[i] !== number) continue;
      const x = Math.max(GUTTER, xOf(lane.starts[i], width)), right = Math.max(x + 2, xOf(lane.ends[i], width));
      context.strokeRect(x, l * row + 0.5, right - x, row - 2);
    }
  });
  context.lineWidth = 1;
}

function describe(l, i) {
  const lane = lanes[l], stage = planStage(lane.record);
  const range = view.end - view.begin;
  let text = `Stage ${laneName(lane.record)} (${stage.name}): microbatch ${lane.numbers[i]}`;
  if (lane.record.visits > 1) text += `, visit ${lane.visits[i]}`;
  text += `, served at ${instant(lane.starts[i], range)} for ${duration(lane.ends[i] - lane.starts[i])}`;
  if (lane.waits[i] > 0) text += `, after queueing here for ${duration(lane.waits[i])}`;
  const pieces = [];
  for (let p = lane.first[i]; p < lane.first[i + 1]; p++) pieces.push(`${data.categories[lane.causes[p]]} ${duration(lane.lengths[p])}`);
  return text + (pieces.length ? `. Idle before it: ${pieces.join(", ")}.` : ". No gap before it.");
}

function hoverTimeline(t, y) {
  const l = Math.floor(y / rowHeight());
  if (l < 0 || l >= data.stages.length || t < 0) return "";
  if (!isExact()) return slicedText(l, t);
  const lane = lanes[l], i = after(lane.ends, t);
  if (i >= lane.n) return `Stage ${laneName(lane.record)}: ${lane.n ? `drain: ${data.meanings.drain}` : "never used"}`;
  if (lane.starts[i] <= t) return describe(l, i);
  let at = i ? lane.ends[i - 1] : 0;
  for (let p = lane.first[i]; p < lane.first[i + 1]; p++) {
    at += lane.lengths[p];
    const cause = data.categories[lane.causes[p]];
    if (t < at) return `Stage ${laneName(lane.record)} idle for ${duration(lane.lengths[p])}\n${cause}: ${data.meanings[cause]}`;
  }
  return "";
}

function slicedText(l, t) {
  const i = Math.floor(t / data.window.slice_ns), n = data.window.slices;
  if (i < 0 || i >= n) return "";
  const parts = data.categories.filter(name => shares[name] && shares[name][l * n + i]).map(name => `${name} ${percent(shares[name][l * n + i] / 255)}`);
  return `Stage ${laneName(data.stages[l])}, ${duration(data.window.slice_ns)} from ${instant(i * data.window.slice_ns, view.end - view.begin)}\n${parts.join("\n")}`;
}

function select(l, i) {
  if (!lanes[l] || !lanes[l].n) return;
  selected = { lane: l, index: Math.max(0, Math.min(lanes[l].n - 1, i)) };
  const at = lanes[l].starts[selected.index], end = lanes[l].ends[selected.index];
  element("details").textContent = describe(l, selected.index);
  const length = view.end - view.begin;
  if (at < view.begin || end > view.end) show(at - length / 2, at + length / 2); else repaint();
}

function timelineKey(event) {
  if (!lanes.length || event.ctrlKey || event.metaKey || event.altKey) return false;
  const l = chosenLane(), lane = lanes[l];
  const near = to => Math.min(lanes[to].n - 1, after(lanes[to].ends, selected ? lanes[l].starts[selected.index] : view.begin));
  const move = { ArrowDown: () => select(Math.min(lanes.length - 1, selected ? l + 1 : 0), near(Math.min(lanes.length - 1, selected ? l + 1 : 0))), ArrowUp: () => select(Math.max(0, l - 1), near(Math.max(0, l - 1))), n: () => select(l, selected ? selected.index + 1 : near(l)), p: () => select(l, selected ? selected.index - 1 : near(l)), Escape: () => { selected = null; element("details").textContent = HINT; repaint(); } }[event.key];
  if (!move || !lane) return false;
  move();
  return true;
}

function startTimeline(raw) {
  lanes = decodeLanes(raw);
  for (const name of data.categories) shares[name] = column(raw, "share." + name, Uint8Array);
  element("details").textContent = HINT;
  const canvas = timeCanvas("timeline", drawTimeline, hoverTimeline, () => data.stages.length * rowHeight() + 20);
  canvas.addEventListener("keydown", event => { if (timelineKey(event)) event.preventDefault(); });
  canvas.addEventListener("click", event => {
    const l = Math.floor(event.offsetY / rowHeight());
    const t = view.begin + (event.offsetX - GUTTER) / (canvas.clientWidth - GUTTER) * (view.end - view.begin);
    if (isExact() && lanes[l] && lanes[l].n) select(l, after(lanes[l].ends, t));
  });
}
