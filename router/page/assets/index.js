"use strict";
const at = id => document.getElementById(id);
const whole = value => Math.round(value).toLocaleString("en");
const three = value => value >= 99.95 ? whole(value) : value.toPrecision(3);  // toPrecision alone makes 1.00e+3 of 999.6
const share = value => (100 * value).toFixed(value < 0.1 ? 1 : 0) + " %";

function span(seconds) {
  if (seconds === null) return "-";
  if (seconds < 1e-3) return three(seconds * 1e6) + " us";
  if (seconds < 1) return three(seconds * 1e3) + " ms";
  if (seconds < 120) return three(seconds) + " s";
  return whole(seconds / 60) + " min";
}

const bound = seconds => seconds === null ? "-" : "< " + span(seconds);  // the edge of a histogram's bucket

function element(kind, text, properties) {
  const found = Object.assign(document.createElement(kind), properties);
  if (text) found.textContent = text;
  return found;
}

function lost(view) {
  return [view.failed && view.failed + " failed", view.cancelled && view.cancelled + " left"].filter(Boolean).join(", ");
}

function pace(view) {
  const rests = !(view.running || view.waiting || view.in_flight || view.speed);
  return rests ? "no work since" : view.speed.toFixed(2) + " x wall time";
}

function figures(view) {
  const emulated = view.emulated_tokens_per_s;
  return [
    ["running", whole(view.running), view.waiting + " waiting"],
    ["finished", whole(view.finished), lost(view) || view.requests_per_s.toFixed(1) + "/s wall"],
    ["emulated tokens/s", emulated === null ? "-" : whole(emulated), whole(view.tokens_per_s) + "/s wall"],
    ["TTFT p50", bound(view.ttft_s[0]), "p99 " + bound(view.ttft_s[1])],
    ["ITL p50", bound(view.itl_s[0]), "p99 " + bound(view.itl_s[1])],
    ["in flight", view.in_flight, "of " + view.credits + " credits"],
    ["emulated clock", span(view.emulated_s), view.slip_s ? "slipped " + span(view.slip_s) : pace(view)],
  ];
}

function stageColumn(stage) {
  const column = element("div", "", {className: "stage"});
  const bar = element("div", "", {className: stage.healthy ? "bar" : "bar down"});
  const said = ORDER.filter(name => stage.shares[name] > 0).map(name => name + " " + share(stage.shares[name]));
  column.title = "stage " + stage.stage + ": " + (stage.healthy ? said.join(", ") || "nothing served" : "down") + "; KV " + share(stage.kv_ratio);
  for (const name of ORDER) {
    const part = stage.shares[name] || 0;
    if (part > 0) bar.append(element("i", "", {style: "flex:0 0 " + 100 * part + "%;background:var(--" + name + ")"}));
  }
  const kv = element("div", "", {className: "kv"});
  kv.append(element("i", "", {className: stage.kv_ratio > 0.95 ? "full" : "", style: "width:" + 100 * stage.kv_ratio + "%"}));
  column.append(bar, kv, element("div", String(stage.stage)));
  return column;
}

function pipeline(view) {
  const replicas = new Map();
  for (const stage of view.stages) replicas.set(stage.replica, [...(replicas.get(stage.replica) || []), stage]);
  return [...replicas].map(([replica, stages]) => {
    const strip = element("div", "", {className: "strip"});
    strip.append(element("div", replicas.size > 1 ? "replica " + replica : "time, KV", {className: "name"}));
    strip.append(...stages.map(stageColumn));
    return strip;
  });
}

function legend(view) {
  const known = view.stages.filter(stage => Object.keys(stage.shares).length);
  if (!known.length) return [element("span", "no stage has served anything yet")];
  const mean = name => known.reduce((sum, stage) => sum + (stage.shares[name] || 0), 0) / known.length;
  return ORDER.filter(name => mean(name) >= 0.0005).map(name => {
    const item = element("span");
    item.append(element("i", "", {style: "background:var(--" + name + ")"}), name.replaceAll("_", " ") + " " + share(mean(name)));
    return item;
  });
}

function show(view) {
  at("figures").replaceChildren(...figures(view).map(([name, value, more]) => {
    const box = element("div", "", {className: "figure"});
    box.append(element("span", name), element("b", String(value)), element("span", more));
    return box;
  }));
  at("pipeline").replaceChildren(...pipeline(view));
  at("legend").replaceChildren(...legend(view));
  at("since").textContent = "where each stage's emulated time went, and how full its KV is";
}

function state(text, good) {
  at("state").textContent = text;
  at("state").className = good ? "state good" : "state bad";
}

async function look() {
  try {
    const ready = await fetch("ready");
    const view = await fetch("status");
    const why = ready.ok ? "" : (await ready.json()).error.message;
    if (!view.ok) throw new Error("HTTP " + view.status);
    const found = await view.json();
    show(found);
    state(why || found.mode + ", takes requests", ready.ok);
  } catch (error) {
    state("the router does not answer (" + error.message + ")", false);
  }
  setTimeout(look, 2000);
}

at("origin").textContent = location.origin;
look();
