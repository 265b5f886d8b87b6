// Columns out of the blob: see columns.py. Everything is since the start of the window, in nanoseconds.
const data = JSON.parse(document.getElementById("data").textContent);

async function inflate() {
  const text = atob(document.getElementById("blob").textContent.trim());
  const packed = Uint8Array.from(text, c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function column(raw, name, kind = Float64Array) {
  const where = data.columns[name];
  if (!where) return null;
  const [offset, count, planes] = where;
  const values = new kind(count);
  let weight = 1;
  for (let p = 0, at = offset; p < planes; p++, weight *= 256)
    for (let i = 0; i < count; i++, at++) values[i] += raw[at] * weight;
  return values;
}

// Per lane: starts and ends of its services, and the pieces of the gap before each.
function decodeLanes(raw) {
  if (!data.events) return [];
  const counts = column(raw, "lane.services"), gaps = column(raw, "service.gap");
  const durations = column(raw, "service.duration"), waits = column(raw, "service.wait");
  const steps = column(raw, "service.number"), visits = column(raw, "service.visit", Uint16Array);
  const pieces = column(raw, "service.pieces", Uint8Array);
  const causes = column(raw, "piece.cause", Uint8Array), lengths = column(raw, "piece.length");
  let service = 0, piece = 0;
  return data.stages.map((record, l) => {
    const n = counts[l], lane = {
      record, n, waits: waits.subarray(service, service + n), visits: visits.subarray(service, service + n),
      starts: new Float64Array(n), ends: new Float64Array(n), numbers: new Uint32Array(n),
      first: new Uint32Array(n + 1), causes, lengths,
    };
    let at = 0, number = 0;
    for (let i = 0; i < n; i++, service++) {
      const step = steps[service];
      number += step % 2 ? -(step + 1) / 2 : step / 2;
      lane.numbers[i] = number;
      lane.starts[i] = at + gaps[service];
      at = lane.ends[i] = lane.starts[i] + durations[service];
      lane.first[i] = piece;
      piece += pieces[service];
    }
    lane.first[n] = piece;
    return lane;
  });
}

// First index whose value is greater than x.
function after(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > x) high = middle; else low = middle + 1;
  }
  return low;
}
