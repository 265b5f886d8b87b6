// Fills the page.
const LATENCY = [["TTFT", "ttft"], ["TPOT", "tpot"], ["ITL", "itl"], ["E2E", "e2e"], ["queue", "queue"]];
const CURVES = [["TTFT", "ttft", "ttft"], ["TPOT", "tpot", "tpot"], ["E2E", "e2e", "accent"], ["queue", "queue", "queue"]];

function card(name, value, more) {
  return make("div", { class: "card" }, make("div", { class: "name" }, name), make("div", { class: "value" }, value), make("div", { class: "more" }, more));
}

function fillText() {
  const s = data.summary, t = s.topology, at = v => v === null ? "-" : duration(v * 1e9);
  element("title").textContent = document.title.split(" · ")[0];
  element("subtitle").textContent = `${t.devices} devices${t.fleet ? "" : `, ${t.stages} stages, ${t.visits} visits per token`}${t.replicas > 1 ? `, ${t.replicas} replicas` : ""}${data.label && `; ${data.label}`}. ${s.workload}`;
  const kv = s.binding_stage === null ? "no stage refused KV" : `KV binds at stage ${stageName(s.binding_stage)}`;
  element("cards").replaceChildren(
    ...(s.measured ? [
      card("Output tokens/s", three(s.measured.served_output_tokens_per_s), s.measured.window),
      card("Served requests/s", three(s.measured.served_requests_per_s), s.measured.offered_requests_per_s === null ? "in the same time" : `of ${three(s.measured.offered_requests_per_s)} offered`),
    ] : []),
    card("TTFT p50", at(s.ttft_s.p50), `p99 ${at(s.ttft_s.p99)}`), card("TPOT p50", at(s.tpot_s.p50), `p99 ${at(s.tpot_s.p99)}`),
    card("E2E p50", at(s.e2e_s.p50), `p99 ${at(s.e2e_s.p99)}`), card("Bubbles", percent(s.bubble_ratio), `busiest stage ${s.busiest_stage === null ? "-" : stageName(s.busiest_stage)}`),
    card("KV peak", percent(s.kv_peak_ratio), kv), card("Requests", count(s.requests.finished), `of ${count(s.requests.total)} finished`));
  const advice = data.advice.map(a => make("li", {}, make("b", {}, a.seen), `. What can move it: ${a.moved_by}.`));
  advice.push(...data.tuning.map(line => make("li", {}, line)));
  if (advice.length) element("advice").replaceChildren(...advice); else element("advice-section").remove();
  const head = make("tr", {}, ...["", "mean", "p50", "p90", "p95", "p99", "max"].map(n => make("th", { scope: "col" }, n)));
  const rows = LATENCY.map(([label, name]) => make("tr", {}, make("th", { scope: "row" }, label), ...["mean", "p50", "p90", "p95", "p99", "max"].map(q => make("td", {}, at(s[name + "_s"][q])))));
  element("latency").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  const facts = [["command", s.command], ["workload", s.workload], ["engine", `${s.engine}, seed ${s.seed}, ${s.credits} credits`], ["emulated", `${at(s.emulated_s)} in ${three(s.wall_s)} s of wall time`], ["work", `${count(s.microbatches)} microbatches, ${count(s.stage_visits)} stage visits, ${count(s.preemptions)} preemptions`], ["plan", t.plan_digest], ["digest", s.digest]];
  if (s.slo) facts.push(["SLO", `${s.slo.met ? "met" : "missed"}: ${s.slo.objective}; ${percent(s.slo.attainment)} good${s.slo.requests && s.slo.requests !== s.requests.total ? ` of the ${count(s.slo.requests)} that arrived in the measurement window` : ""}`]);
  if (s.measured) facts.push(["measured", `${s.measured.window}: ${three(s.measured.served_output_tokens_per_s)} output tokens/s${s.measured.goodput_requests_per_s === null ? "" : `, goodput ${three(s.measured.goodput_requests_per_s)} requests/s`}${s.measured.remark && `; ${s.measured.remark}`}`]);
  if (s.cost) facts.push(["cost", `${three(s.cost.per_hour)} per hour${s.cost.per_million_output_tokens === null ? "" : `, ${three(s.cost.per_million_output_tokens)} per million output tokens`}`]);
  element("facts").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, make("code", {}, String(value)))]));
}

// What each pool of a fleet served, and how full it was.
function fillPools() {
  const pools = data.summary.pools, at = v => v === null ? "-" : duration(v * 1e9);
  if (!pools.length) { element("pools-section").remove(); return; }
  const names = ["pool", "role", "devices", "requests", "in tokens/s", "out tokens/s", "busy", "bubbles", "queue p50", "queue p99", "preemptions", "KV peak", ...(data.summary.hand_over ? ["egress", "ingress"] : [])];
  const rows = pools.map(p => {
    const cells = [p.role, `${count(p.devices)} x ${p.device}`, count(p.requests), three(p.prompt_tokens_per_s), three(p.output_tokens_per_s), percent(p.busy_ratio), percent(p.bubble_ratio), at(p.queue_s.p50), at(p.queue_s.p99), count(p.preemptions), percent(p.kv_peak_ratio), ...(p.ports ? [percent(p.ports.egress_ratio), percent(p.ports.ingress_ratio)] : [])];
    return make("tr", {}, make("th", { scope: "row" }, p.label), ...cells.map(c => make("td", {}, c)));
  });
  element("pools").replaceChildren(make("thead", {}, make("tr", {}, ...names.map(n => make("th", { scope: "col" }, n)))), make("tbody", {}, ...rows));
}

// Share of finished requests within a time, on a logarithmic axis.
function drawQuantiles(raw) {
  const target = element("quantiles"), width = Math.max(300, target.clientWidth), height = 210, left = 44, bottom = height - 34;
  const curves = CURVES.map(([label, name, fill]) => [label, column(raw, "quantile." + name), fill]).filter(([, v]) => v && v.length);
  const positive = curves.flatMap(([, v]) => [...v].filter(x => x > 0));
  if (!positive.length) return;
  const low = Math.floor(Math.log10(Math.min(...positive))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive))));
  const x = v => left + (Math.log10(Math.max(v, 10 ** low)) - low) / (high - low) * (width - left - 10), y = q => bottom - q * (bottom - 10);
  const svg = make("svg", { width, height, role: "img", "aria-label": "Share of finished requests within a time" });
  for (let p = low; p <= high; p++) svg.append(make("line", { class: "grid", x1: x(10 ** p), x2: x(10 ** p), y1: 10, y2: bottom }), make("text", { x: x(10 ** p), y: bottom + 14, "text-anchor": p === high ? "end" : "middle" }, duration(10 ** p)));
  for (const q of [0, 0.5, 0.9, 1]) svg.append(make("line", { class: "grid", x1: left, x2: width - 10, y1: y(q), y2: y(q) }), make("text", { x: left - 6, y: y(q) + 4, "text-anchor": "end" }, 100 * q + " %"));
  curves.forEach(([label, values, fill], k) => {
    svg.append(make("path", { class: "curve", stroke: `var(--${fill})`, d: "M" + [...values].map((v, i) => `${x(v).toFixed(1)},${y((i + 1) / values.length).toFixed(1)}`).join("L") }));
    svg.append(make("rect", { x: left + k * 70, y: height - 10, width: 10, height: 10, fill: `var(--${fill})` }), make("text", { x: left + 14 + k * 70, y: height - 1 }, label));
  });
  target.replaceChildren(svg);
}

function connect() {
  const tokens = 3e9 * (data.summary.tpot_s.p50 || data.summary.ttft_s.p50 || 0);
  const trip = Math.max(1000, tokens, ...lanes.filter(lane => lane.n).map(lane => 1.5 * lane.ends[0]));
  const length = Math.min(whole, trip);
  const views = {
    all: () => show(0, whole), first: () => show(0, length), middle: () => show((whole - length) / 2, (whole + length) / 2), last: () => show(whole - length, whole),
    in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.5), right: () => pan(0.5),
  };
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", views[button.dataset.view]);
  element("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  repaint();
}

async function start() {
  theme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  fillText();
  fillPools();
  drawLegend();
  stageTable();
  const raw = await inflate();
  if (data.events) startTimeline(raw);
  else for (const id of ["timeline", "details"]) element(id).remove();
  element("timeline-note").textContent = !data.events
    ? "This run has no events: run it with --events to see what each stage served when."
    : data.window.exact_services < data.window.services ? `Every service up to ${duration(data.window.exact_until_ns)}, shares per slice after that (${count(data.window.services)} services in all).` : "";
  connect();
  startQueue(raw);
  startGroups(raw);
  startKv(raw);
  startWaterfall(raw);
  painters.push(drawStages, () => drawQuantiles(raw));
  repaint();
  requestAnimationFrame(() => { document.documentElement.dataset.ready = "yes"; });
}

start().catch(error => {
  element("timeline-note").textContent = `This page needs a browser of 2023 or later: ${error.message}`;
  throw error;
});
