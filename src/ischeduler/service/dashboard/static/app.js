// Makes what already works pleasanter: curves one can point at, live parts that keep their place, a pause. Nothing here is needed.
"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const LINES = ["--live", "--second", "--third"];
  const drawn = new Map();

  function figure(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    return size >= 10000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(size >= 100 ? 4 : 3)));
  }

  function bands(limits, scale) {
    return { hooks: { drawClear: (plot) => {
      limits.forEach((limit, i) => {
        const top = plot.valToPos(limit.high, scale, true), bottom = plot.valToPos(limit.low, scale, true);
        plot.ctx.save();
        plot.ctx.globalAlpha = 0.16;
        plot.ctx.fillStyle = colour(LINES[i % LINES.length]);
        plot.ctx.fillRect(plot.bbox.left, Math.min(top, bottom), plot.bbox.width, Math.max(2, Math.abs(bottom - top)));
        plot.ctx.restore();
      });
    } } };
  }

  function draw(frame) {
    let curve;
    try { curve = JSON.parse(frame.dataset.curve); } catch { return; }
    if (!window.uPlot || curve.x.length < 2) return;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const highest = Math.max(...curve.limits.map((l) => l.high), ...curve.lines.flatMap((l) => l.y.filter((v) => v !== null)));
    const range = curve.unit === "%" ? [0, 100] : curve.unit ? [0, highest * 1.05] : undefined;
    const options = {
      width: frame.clientWidth, height: 200, legend: { live: true }, cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false }, y: range ? { range } : {} },
      axes: [{ ...axis, values: (_, v) => v.map(figure) }, { ...axis, size: 52, values: (_, v) => v.map((x) => figure(x) + (curve.unit ? " " + curve.unit : "")) }],
      series: [{ label: curve.xName, value: (_, v) => figure(v) }, ...curve.lines.map((line, i) => ({
        label: line.name, stroke: colour(LINES[i % LINES.length]), width: 1.75, spanGaps: false, points: { show: false },
        value: (_, v) => figure(v) + (v === null || !curve.unit ? "" : " " + curve.unit),
      }))],
      plugins: curve.limits.length ? [bands(curve.limits, "y")] : [],
    };
    frame.dataset.words ??= frame.querySelector("svg").getAttribute("aria-label");
    frame.replaceChildren();
    frame.classList.add("drawn");
    const box = document.createElement("div");
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", frame.dataset.words);
    frame.append(box);
    drawn.set(frame, new window.uPlot(options, [curve.x, ...curve.lines.map((line) => line.y)], box));
  }

  function drawAll() {
    for (const [frame, plot] of drawn) if (!frame.isConnected) { plot.destroy(); drawn.delete(frame); }
    document.querySelectorAll("[data-curve]:not(.drawn)").forEach(draw);
  }

  let resizing = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => drawn.forEach((plot, frame) => plot.setSize({ width: frame.clientWidth, height: 200 })), 100);
  });

  // A live part keeps what a reader has opened and how far they have scrolled.
  let kept = { open: [], scrolled: [] };
  const places = (root) => [...root.querySelectorAll(".scroll, .log")];
  document.addEventListener("htmx:beforeSwap", (event) => {
    const root = event.detail.target;
    kept = { open: [...root.querySelectorAll("details")].map((d) => d.open), scrolled: places(root).map((p) => p.scrollTop + 4 >= p.scrollHeight - p.clientHeight ? Infinity : p.scrollTop) };
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const root = event.detail.target;
    root.querySelectorAll("details").forEach((d, i) => { d.open = kept.open[i] ?? d.open; });
    places(root).forEach((p, i) => { if (kept.scrolled[i] !== undefined) p.scrollTop = Math.min(kept.scrolled[i], p.scrollHeight); });
    drawAll();
  });

  // Live parts can be paused, and wait while somebody selects text in them or points at a curve.
  let paused = false;
  function waits(root) {
    const selection = window.getSelection(), selects = selection?.toString() && root.contains(selection.anchorNode);
    return paused || document.hidden || selects || root.querySelector(".uplot:hover") !== null;
  }
  document.addEventListener("htmx:beforeRequest", (event) => { if (waits(event.target)) event.preventDefault(); });
  document.addEventListener("htmx:beforeSwap", (event) => { if (waits(event.detail.target)) event.detail.shouldSwap = false; });
  function pauseButton() {
    const live = document.querySelector("[hx-trigger]:not([hx-trigger='never'])"), footer = document.querySelector("footer");
    if (!live || !footer) return;
    const button = document.createElement("button");
    button.className = "quiet live-switch";
    const show = () => { button.textContent = paused ? "Go on live" : "Pause live updates"; button.setAttribute("aria-pressed", String(paused)); };
    button.addEventListener("click", () => { paused = !paused; show(); });
    show();
    footer.append(button);
  }

  // A form that is on its way is not sent twice.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    form.setAttribute("aria-busy", "true");
  });
  window.addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((f) => { delete f.dataset.sent; f.removeAttribute("aria-busy"); }));

  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const [frame, plot] of drawn) { plot.destroy(); draw(frame); }
  });
  const log = document.querySelector(".log");
  if (log) log.scrollTop = log.scrollHeight;
  drawAll();
  pauseButton();
})();
