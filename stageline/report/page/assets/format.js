// Figures as people read them, and small helpers for elements.
const three = v => v === 0 ? "0" : Math.abs(v) >= 99.95 ? Math.round(v).toLocaleString("en") : Math.abs(v) >= 9.995 ? v.toFixed(1) : v.toFixed(2);
const percent = v => v === 0 ? "0 %" : v < 0.0005 ? "<0.1 %" : (100 * v).toFixed(1) + " %";
const count = v => Math.round(v).toLocaleString("en");

function duration(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
    if (Math.abs(ns) >= 0.9995 * size) return three(ns / size) + " " + unit;
  return three(ns) + " ns";
}

// A point in time, with as many digits as a range of that length needs.
function instant(ns, range) {
  const [unit, size] = range >= 2e9 ? ["s", 1e9] : range >= 2e6 ? ["ms", 1e6] : ["µs", 1e3];
  const digits = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(range / size))));
  return (ns / size).toFixed(digits) + " " + unit;
}

function bytes(v) {
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (v >= 0.9995 * size) return three(v / size) + " " + unit;
  return Math.round(v) + " B";
}

// About `wanted` round steps over [begin, end].
function ticks(begin, end, wanted) {
  const raw = (end - begin) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(f => f * power >= raw);
  const list = [];
  for (let t = Math.ceil(begin / step) * step; t <= end + step / 1e6; t += step) list.push(t);
  return list;
}

const element = id => document.getElementById(id);
const several = new Set(data.stages.map(s => s.replica)).size > 1;
const laneName = s => several ? `${data.replicas[s.replica] ?? s.replica}/${s.stage}` : String(s.stage);
const planStage = s => data.plan_stages[data.stage_numbers[data.stages.indexOf(s)]];

// A stage by its number through all pools.
function stageName(n) {
  for (const pool of data.summary.pools) {
    if (n < pool.stages) return `${pool.name}/${n}`;
    n -= pool.stages;
  }
  return String(n);
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "text", "line", "path", "g", "title"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
