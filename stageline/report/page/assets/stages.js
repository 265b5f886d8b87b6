// Where each stage's window went, and how full its ledger got.
const share = (s, name) => (name === "busy" ? s.busy_ns : s.idle_ns[name] || 0) / (s.window_ns || 1);
const occurring = () => data.categories.filter(name => data.stages.some(s => share(s, name) > 0));

// Vertical bars, one per stage, `parts` from the bottom up: [name, share, fill].
function bars(target, parts, height, axis) {
  const width = Math.max(300, target.clientWidth), left = 44, bottom = height - 20, n = data.stages.length;
  const step = (width - left) / n, gap = step > 6 ? 2 : step > 3 ? 0.5 : 0;
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": axis });
  for (const t of [0, 0.25, 0.5, 0.75, 1]) {
    const y = bottom - t * (bottom - 8);
    svg.append(make("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }), make("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, 100 * t + " %"));
  }
  data.stages.forEach((s, i) => {
    let at = bottom;
    const group = make("g");
    const lines = [`Stage ${laneName(s)} (${planStage(s).name})`];
    for (const [name, value, fill, text] of parts(s)) {
      const h = value * (bottom - 8);
      if (h > 0) group.append(make("rect", { x: left + i * step, y: at - h, width: Math.max(0.5, step - gap), height: h, fill: `var(--${fill})` }));
      if (value > 0) lines.push(`${name} ${text || percent(value)}`);
      at -= h;
    }
    group.addEventListener("pointermove", event => tip(event, lines.join("\n")));
    group.addEventListener("pointerleave", event => tip(event, ""));
    svg.append(group);
    if (i % Math.ceil(26 / step) === 0) svg.append(make("text", { x: left + i * step + step / 2, y: height - 5, "text-anchor": "middle" }, laneName(s)));
  });
  target.replaceChildren(svg);
}

function drawStages() {
  const names = occurring();
  bars(element("occupancy"), s => names.map(name => [name, share(s, name), name]), 230, "Busy and idle by cause, share of the run's window per stage");
  const ledger = data.stages.some(s => s.kv_budget_bytes > 0);
  if (ledger) bars(element("ledger"), s => [["KV peak", s.kv_budget_bytes ? s.kv_peak_bytes / s.kv_budget_bytes : 0, "accent", `${bytes(s.kv_peak_bytes)} of ${bytes(s.kv_budget_bytes)}`]], 130, "KV peak, share of the budget per stage");
  else element("ledger-title").hidden = true;
}

function stageTable() {
  const names = occurring();
  const head = make("tr", {}, ...["stage", "name", "layers", ...names.map(n => n + " %"), "KV peak %", "microbatches"].map(t => make("th", { scope: "col" }, t)));
  const rows = data.stages.map(s => {
    const p = planStage(s);
    const cells = [laneName(s), p.name, p.layers, ...names.map(n => (100 * share(s, n)).toFixed(2)), s.kv_budget_bytes ? (100 * s.kv_peak_bytes / s.kv_budget_bytes).toFixed(1) : "-", count(s.microbatches)];
    return make("tr", {}, ...cells.map(c => make("td", {}, String(c))));
  });
  element("stage-table").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
}

function drawLegend() {
  element("legend").replaceChildren(...occurring().map(name => make("span", {}, make("i", { style: `background:var(--${name})` }), `${name}: ${data.meanings[name]}`)));
}
