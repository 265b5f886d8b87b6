// Queue, KV and requests under the same time axis.
function strip(context, width, height, series, top, label) {
  timeAxis(context, width, height);
  const bottom = height - 16, y = v => bottom - v / (top || 1) * (bottom - 14), slice = data.window.slice_ns;
  context.fillStyle = colour("quiet"); context.textAlign = "right";
  context.fillText(label(top), GUTTER - 6, 18);
  context.fillText(label(0), GUTTER - 6, bottom);
  const from = Math.floor(view.begin / slice), to = Math.min(data.window.slices, Math.ceil(view.end / slice));
  context.save();
  context.beginPath(); context.rect(GUTTER, 0, width - GUTTER, height); context.clip();
  for (const { values, offset, stroke, fill, thin } of series) {
    context.beginPath();
    for (let i = from; i < to; i++) {
      const v = y(values[offset + i]);
      context.lineTo(xOf(i * slice, width), v); context.lineTo(xOf((i + 1) * slice, width), v);
    }
    context.strokeStyle = stroke; context.lineWidth = thin ? 0.7 : 1.6; context.stroke();
    if (fill) { context.lineTo(xOf(to * slice, width), bottom); context.lineTo(xOf(from * slice, width), bottom); context.globalAlpha = 0.15; context.fillStyle = stroke; context.fill(); context.globalAlpha = 1; }
  }
  context.restore(); context.lineWidth = 1;
}

const sliceAt = t => Math.max(0, Math.min(data.window.slices - 1, Math.floor(t / data.window.slice_ns)));

function startQueue(raw) {
  const waiting = column(raw, "queue.waiting"), running = column(raw, "queue.running");
  const top = () => { // of what is in view
    const from = sliceAt(view.begin), to = sliceAt(view.end) + 1;
    return Math.max(1, ...waiting.subarray(from, to), ...running.subarray(from, to));
  };
  element("queue-title").replaceChildren("Queue: ", swatch("waiting"), "waiting, ", swatch("accent"), "running");
  timeCanvas("queue", (context, width, height) => strip(context, width, height, [
    { values: running, offset: 0, stroke: colour("accent"), fill: true }, { values: waiting, offset: 0, stroke: colour("waiting"), fill: true },
  ], top(), count), t => `${count(waiting[sliceAt(t)])} waiting, ${count(running[sliceAt(t)])} running`);
}

// Requests in flight, a band for each group: what travels in one microbatch, round after round.
function startGroups(raw) {
  const n = data.window.slices, groups = data.groups, values = groups && column(raw, "groups");
  if (!values) { element("groups-title").remove(); element("groups").remove(); return; }
  const of = (g, i) => values[g * n + i] / 10;
  const sums = new Float64Array(n);
  for (let g = 0; g < groups; g++) for (let i = 0; i < n; i++) sums[i] += of(g, i);
  const replicas = data.summary.topology.replicas > 1 ? `, replica ${data.replicas[0] ?? 0}` : "";
  element("groups-title").textContent = `Groups: requests in flight, a band for each group that travels together (${(data.summary.pools[0] ?? data.summary).credits} microbatches may be in flight${replicas})`;
  timeCanvas("groups", (context, width, height) => {
    timeAxis(context, width, height);
    const from = Math.floor(view.begin / data.window.slice_ns), to = Math.min(n, Math.ceil(view.end / data.window.slice_ns));
    const top = Math.max(1, ...sums.subarray(from, to)), bottom = height - 16;
    context.fillStyle = colour("quiet"); context.textAlign = "right";
    context.fillText(three(top), GUTTER - 6, 14);
    context.fillText("0", GUTTER - 6, bottom);
    context.save();
    context.beginPath(); context.rect(GUTTER, 0, width - GUTTER, height); context.clip();
    const bands = [0, 1, 2].map(k => colour("service-" + k));
    for (let i = from; i < to; i++) {
      const x = xOf(i * data.window.slice_ns, width), w = xOf((i + 1) * data.window.slice_ns, width) - x + 0.5;
      for (let g = 0, at = bottom; g < groups; g++) {
        const h = of(g, i) / top * (bottom - 6);
        context.fillStyle = bands[g % 3];
        context.fillRect(x, at - h, w, h);
        at -= h;
      }
    }
    context.restore();
  }, t => groupsText(of, groups, sliceAt(t)));
}

function groupsText(of, groups, i) {
  const lines = [];
  for (let g = 0; g < groups && lines.length < 16; g++) if (of(g, i) > 0) lines.push(`group ${g}: ${of(g, i).toFixed(1)}`);
  return lines.length ? `requests in flight\n${lines.join("\n")}` : "nothing in flight";
}

// The lane that comes nearest to its budget; with few lanes also the others, thin.
function startKv(raw) {
  const values = column(raw, "kv"), n = data.window.slices;
  if (!values) { element("kv-title").remove(); element("kv").remove(); return; }
  const peaks = data.stages.map((_, l) => Math.max(...values.subarray(l * n, (l + 1) * n)));
  const fullest = peaks.indexOf(Math.max(...peaks));
  element("kv-title").textContent = `KV cache: share of the budget, stage ${laneName(data.stages[fullest])} (the fullest) in bold`;
  timeCanvas("kv", (context, width, height) => {
    const thin = data.stages.length <= 64 ? data.stages.map((_, l) => ({ values, offset: l * n, stroke: colour("wait"), thin: true })) : [];
    strip(context, width, height, [...thin, { values, offset: fullest * n, stroke: colour("accent"), fill: true }], 1000, v => v / 10 + " %");
  }, t => { const v = values[fullest * n + sliceAt(t)]; return `stage ${laneName(data.stages[fullest])}: ${percent(v / 1000)} of ${bytes(data.stages[fullest].kv_budget_bytes)}`; });
}

const swatch = name => make("i", { style: `display:inline-block;width:10px;height:10px;border-radius:2px;margin:0 4px 0 2px;background:var(--${name})` });

function startWaterfall(raw) {
  const r = Object.fromEntries(["index", "arrival", "admitted", "first_token", "last_token", "prompt_tokens", "output_tokens", "preemptions", "replica", "outcome", "sent", "landed", "decode_replica"].map(name => [name, column(raw, "request." + name)]));
  const n = r.index.length, end = i => r.last_token[i] ? r.arrival[i] + r.last_token[i] - 1 : r.arrival[i];
  let rows = [];
  element("waterfall-title").replaceChildren("Requests: ", swatch("wait"), "queued, ", swatch("prefill"), "prefill, ", swatch("decode"), "decode", ...(r.landed ? [", ", swatch("moving"), "KV on its way"] : []));
  element("waterfall-note").textContent = data.waterfall.every > 1 ? `One of every ${data.waterfall.every} requests, by arrival.` : "";
  // The wait for room and for ports, and the way of the KV, over what is drawn already.
  const handedOver = (context, i, y, h, width) => {
    const a = r.arrival[i] - 1, first = r.first_token[i];
    if (first && first < r.sent[i]) bar(context, a + first, a + r.sent[i], y, h, width, colour("wait"));
    bar(context, a + r.sent[i], a + r.landed[i], y, h, width, colour("moving"));
    if (first > r.landed[i]) bar(context, a + r.landed[i], a + first, y, h, width, colour("decode"));
  };
  const moved = i => r.landed && r.landed[i] ? `\nKV sent after ${duration(r.sent[i] - 1)}, usable on ${data.replicas[r.decode_replica[i] - 1]} after ${duration(r.landed[i] - 1)}` : "";
  const rowOf = height => Math.min(14, (height - 18) / Math.max(1, rows.length));
  timeCanvas("waterfall", (context, width, height) => {
    rows = [];
    for (let i = 0; i < n; i++) if (r.arrival[i] <= view.end && end(i) >= view.begin) rows.push(i);
    timeAxis(context, width, height);
    const [wait, prefill, decode] = ["wait", "prefill", "decode"].map(colour);
    const step = rowOf(height), h = Math.max(0.7, step > 4 ? step - 1.5 : step);
    context.fillStyle = colour("quiet"); context.textAlign = "right";
    for (let k = 0; k < rows.length; k += Math.max(1, Math.ceil(14 / step))) context.fillText(rows[k] === undefined ? "" : r.index[rows[k]], GUTTER - 6, k * step + Math.min(11, step));
    context.save(); context.beginPath(); context.rect(GUTTER, 0, width - GUTTER, height); context.clip();
    rows.forEach((i, k) => {
      const y = k * step, a = r.arrival[i];
      if (!r.admitted[i]) { bar(context, a, a + (view.end - view.begin) / 200, y, h, width, colour("waiting")); return; }
      bar(context, a, a + r.admitted[i] - 1, y, h, width, wait);
      bar(context, a + r.admitted[i] - 1, a + (r.first_token[i] || r.last_token[i]) - 1, y, h, width, prefill);
      if (r.first_token[i]) bar(context, a + r.first_token[i] - 1, end(i), y, h, width, decode);
      if (r.landed && r.landed[i]) handedOver(context, i, y, h, width);
    });
    context.restore();
  }, (t, y) => {
    const i = rows[Math.floor(y / rowOf(element("waterfall").clientHeight))];
    if (i === undefined) return "";
    const outcome = data.outcomes[r.outcome[i]] + (data.replicas.length ? ` on ${data.replicas[r.replica[i]]}` : "");
    if (!r.first_token[i]) return `Request ${r.index[i]}: ${outcome}`;
    return `Request ${r.index[i]}: ${outcome}, ${r.prompt_tokens[i]} + ${r.output_tokens[i]} tokens\nqueued ${duration(r.admitted[i] - 1)}, first token after ${duration(r.first_token[i] - 1)}, all after ${duration(r.last_token[i] - 1)}` + moved(i) + (r.preemptions[i] ? `\npreempted ${r.preemptions[i]} x` : "");
  });
}
