// The time range that all pictures share, and the ways to change it.
const whole = Math.max(1, data.window.length_ns);
const view = { begin: 0, end: whole };
const painters = [];
let pending = false;

function repaint() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; painters.forEach(paint => paint()); });
}

function show(begin, end) {
  const length = Math.min(whole, Math.max(200, end - begin));
  view.begin = Math.max(0, Math.min(whole - length, begin));
  view.end = view.begin + length;
  repaint();
}

const zoom = (factor, at = (view.begin + view.end) / 2) => show(at - (at - view.begin) * factor, at + (view.end - at) * factor);
const pan = share => show(view.begin + share * (view.end - view.begin), view.end + share * (view.end - view.begin));

// A canvas in device pixels with a shared time axis; `draw(context, width, height)` works in CSS pixels.
const GUTTER = Math.max(54, Math.min(170, 12 + 6.5 * Math.max(...data.stages.map(s => laneName(s).length)))); // room for names
function timeCanvas(id, draw, hover, heightOf) {
  const canvas = element(id), context = canvas.getContext("2d");
  const paint = () => {
    if (heightOf) canvas.style.height = heightOf() + "px";
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    draw(context, width, height);
  };
  painters.push(paint);
  new ResizeObserver(repaint).observe(canvas);
  const timeAt = x => view.begin + (x - GUTTER) / (canvas.clientWidth - GUTTER) * (view.end - view.begin);
  attachPointer(canvas, timeAt, hover);
  canvas.addEventListener("keydown", event => { if (viewKey(event)) event.preventDefault(); });
  return canvas;
}

const xOf = (t, width) => GUTTER + (t - view.begin) / (view.end - view.begin) * (width - GUTTER);

function attachPointer(canvas, timeAt, hover) {
  let dragged = null;
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && document.activeElement !== canvas) return; // the wheel scrolls the page until a picture has the focus
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / canvas.clientWidth);
    else zoom(Math.exp(event.deltaY * 0.002), timeAt(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", event => { dragged = { x: event.clientX, begin: view.begin, end: view.end }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { dragged = null; });
  canvas.addEventListener("dblclick", event => zoom(0.25, timeAt(event.offsetX)));
  canvas.addEventListener("pointermove", event => {
    if (dragged) {
      const shift = (dragged.x - event.clientX) / (canvas.clientWidth - GUTTER) * (dragged.end - dragged.begin);
      show(dragged.begin + shift, dragged.end + shift);
    }
    tip(event, hover ? hover(timeAt(event.offsetX), event.offsetY) : "");
  });
  canvas.addEventListener("pointerleave", event => tip(event, ""));
}

function tip(event, text) {
  const box = element("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  box.style.left = Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8) + "px";
  box.style.top = Math.min(event.clientY + 16, window.innerHeight - box.offsetHeight - 8) + "px";
}

function viewKey(event) {
  const act = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Home: () => show(0, whole), 0: () => show(0, whole), End: () => show(whole - (view.end - view.begin), whole) }[event.key];
  if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { act(); return true; }
  return false;
}

function timeAxis(context, width, height) {
  context.fillStyle = colour("quiet");
  context.strokeStyle = colour("grid");
  context.textAlign = "center";
  const range = view.end - view.begin;
  for (const t of ticks(view.begin, view.end, Math.max(3, (width - GUTTER) / 130))) {
    const x = xOf(t, width);
    context.beginPath(); context.moveTo(x, 0); context.lineTo(x, height - 16); context.stroke();
    if (x > GUTTER + 20 && x < width - 30) context.fillText(instant(t, range), x, height - 4);
  }
}
