"use strict";
// Tokens along the flow: points of the plane, and bars of attention, at any log-time.
function watching(watched) {
  if (!watched) return;
  const element = id => document.getElementById(id);
  const [dim, step, slider, play, said] = ["watch-dim", "watch-step", "watch-time", "watch-play", "watch-said"].map(element);
  const kinds = { 1: "positive", "-1": "negative", 0: "irrelevant" };
  const look = kind => report.data.classes[kinds[kind]];
  const stories = [...document.querySelectorAll("[data-story]")];
  const SIGNS = { play: "M2 1v10l9-5z", pause: "M2 1h3v10H2zM7 1h3v10H7z" };
  const sign = drawn => play.querySelector("path").setAttribute("d", drawn);
  const WIDEST = 14;
  let cell, frames, bounds, playing = false, last = 0;

  // A picture as wide as its place, as sharp as the screen.
  function surface(id) {
    const canvas = element(id), ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    return { pen, width, height };
  }

  function open(number) {
    cell = watched.cells[number];
    frames = cell.times.length;
    slider.max = frames - 1;
    dim.value = watched.dims.indexOf(cell.dim);
    step.value = watched.steps.indexOf(cell.step);
    stories.forEach(button => button.setAttribute("aria-pressed", String(+button.dataset.story === number)));
    // The plane is that of the later half: before, scores are all but noise.
    const heights = cell.heights.slice(Math.floor(frames / 3)).flat();
    const across = Math.max(...cell.values.map(Math.abs)) * 1.12;
    const [low, high] = [Math.min(...heights), Math.max(...heights)], room = 0.08 * (high - low || 1);
    bounds = { across, low: low - room, high: high + room };
    // Where attention is half way to its end: the first picture says what the page is about.
    const held = cell.positive.map((weight, i) => weight + cell.negative[i]), half = (held[0] + held[frames - 1]) / 2;
    slider.value = Math.max(0, held.findIndex(weight => (weight - half) * (held[0] - half) <= 0));
    show();
  }

  const between = (rows, at) => {
    const i = Math.min(frames - 1, Math.floor(at)), j = Math.min(frames - 1, i + 1), share = at - i;
    return Array.isArray(rows[i])
      ? rows[i].map((x, k) => x + share * (rows[j][k] - x)) : rows[i] + share * (rows[j] - rows[i]);
  };

  // Round numbers between two others, about as many as asked for.
  function ticks(low, high, number) {
    const rough = (high - low) / number, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(times => times * power).find(size => size >= rough);
    const first = Math.ceil(low / step), count = Math.floor(high / step) - first + 1;
    return Array.from({ length: Math.max(0, count) }, (_, i) => (first + i) * step);
  }

  function mark(pen, kind, x, y, size) {
    pen.fillStyle = look(kind).colour;
    pen.beginPath();
    if (kind === 0) pen.arc(x, y, size * 0.8, 0, 7);
    else {
      const way = kind > 0 ? -1 : 1;
      pen.moveTo(x, y + way * size * 1.2);
      pen.lineTo(x + size * 1.1, y - way * size * 0.8);
      pen.lineTo(x - size * 1.1, y - way * size * 0.8);
    }
    pen.fill();
  }

  function plane(at, colours) {
    const { pen, width, height } = surface("watch-plane");
    const heights = between(cell.heights, at), left = 44, bottom = height - 34;
    const x = value => left + (width - left - 14) * (value + bounds.across) / (2 * bounds.across);
    const y = score => 16 + (bottom - 22) * (bounds.high - Math.min(bounds.high, Math.max(bounds.low, score))) / (bounds.high - bounds.low);
    pen.strokeStyle = colours.rule;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x(0), 8); pen.lineTo(x(0), bottom);
    if (bounds.low < 0 && bounds.high > 0) { pen.moveTo(left, y(0)); pen.lineTo(width - 14, y(0)); }
    pen.stroke();
    pen.fillStyle = colours.soft;
    pen.textAlign = "center";
    pen.fillText("value E·v", width / 2, height - 4);
    ticks(-bounds.across, bounds.across, 6).forEach(value => {
      pen.fillText(report.rounded(value), x(value), bottom + 14);
      pen.beginPath(); pen.moveTo(x(value), bottom); pen.lineTo(x(value), bottom + 4); pen.stroke();
    });
    pen.textAlign = "left";
    pen.fillText("score p·E / log t", left + 6, 12);
    pen.textAlign = "right";
    ticks(bounds.low, bounds.high, 6).forEach(value => {
      pen.fillText(report.rounded(value), left - 4, y(value) + 4);
      pen.beginPath(); pen.moveTo(left, y(value)); pen.lineTo(width - 14, y(value)); pen.stroke();
    });
    pen.globalAlpha = 0.85;
    [0, -1, 1].forEach(kind => cell.values.forEach((value, token) => {
      if (cell.classes[token] === kind) mark(pen, kind, x(value), y(heights[token]), 6);
    }));
    pen.globalAlpha = 1;
  }

  function held(at, colours) {
    const { pen, width, height } = surface("watch-held");
    const left = 30, right = width - 10, bottom = height - 24;
    const x = i => left + (right - left) * i / (frames - 1), y = share => bottom - (bottom - 12) * share;
    pen.strokeStyle = colours.rule;
    pen.fillStyle = colours.soft;
    pen.textAlign = "right";
    [0, 0.5, 1].forEach(share => {
      pen.beginPath(); pen.moveTo(left, y(share)); pen.lineTo(right, y(share)); pen.stroke();
      pen.fillText(share, left - 6, y(share) + 4);
    });
    pen.textAlign = "center";
    for (let power = -1; power <= 5; power += 1) {
      const i = cell.times.findIndex(time => time >= 10 ** power * 0.999);
      if (i > 0) pen.fillText("10" + report.superscript(power), x(i), height - 7);
    }
    [["positive", 1], ["negative", -1]].forEach(([name, kind]) => {
      pen.strokeStyle = look(kind).colour;
      pen.lineWidth = 2;
      pen.setLineDash(kind < 0 ? [6, 4] : []);
      pen.beginPath();
      cell[name].forEach((share, i) => pen.lineTo(x(i), y(share)));
      pen.stroke();
    });
    pen.setLineDash([]);
    pen.lineWidth = 1;
    pen.strokeStyle = colours.ink;
    pen.beginPath(); pen.moveTo(x(at), 6); pen.lineTo(x(at), bottom); pen.stroke();
  }

  function sequences(at, colours) {
    const { pen, width, height } = surface("watch-sequences");
    const number = cell.tokens.length, columns = 3, rows = Math.ceil(number / columns);
    const wide = width / columns, high = height / rows;
    for (let s = 0; s < number; s += 1) {
      const left = (s % columns) * wide + 12, bottom = Math.floor(s / columns) * high + high - 26;
      const slots = cell.counts[s].map((count, k) => k).filter(k => cell.counts[s][k] > 0);
      // One width for all, whatever a sequence repeats.
      const bar = Math.min(WIDEST, (wide - 20) / cell.counts[s].length);
      const now = slots.map(k => {
        const i = Math.min(frames - 1, Math.floor(at)), j = Math.min(frames - 1, i + 1), share = at - i;
        return (cell.weights[i][s][k] * (1 - share) + cell.weights[j][s][k] * share) / 1000;
      });
      pen.strokeStyle = colours.rule;
      pen.beginPath(); pen.moveTo(left, bottom + 0.5); pen.lineTo(left + wide - 20, bottom + 0.5); pen.stroke();
      slots.forEach((k, place) => {
        pen.fillStyle = look(cell.classes[cell.tokens[s][k]]).colour;
        const tall = (high - 44) * now[place];
        pen.fillRect(left + place * bar + 1, bottom - tall, Math.max(2, bar - 3), tall + 1);
      });
      pen.fillStyle = colours.soft;
      pen.textAlign = "left";
      pen.fillText(cell.labels[s] > 0 ? "positive" : "negative", left, bottom + 16);
    }
  }

  function show() {
    const at = +slider.value, colours = report.theme();
    plane(at, colours);
    held(at, colours);
    sequences(at, colours);
    const time = Math.exp(between(cell.times.map(Math.log), at)), norm = between(cell.norms, at);
    const [p, n] = [between(cell.positive, at), between(cell.negative, at)];
    // Only a sweep says whether ties are proved: here the flow stops where they appear.
    const tied = cell.ended === "TIES_UNPROVED" ? "tokens tied, where this flow stops" : "";
    const verdict = cell.certified ? ", certified by the sweep" : "";
    const ending = cell.status ? report.data.palette[cell.status].words + verdict : tied;
    const text = `log t = ${report.rounded(time)}, ‖p‖ = ${report.rounded(norm)}. Positive sequences give ` +
      `${Math.round(100 * p)} % of their attention to important tokens, negative ones ${Math.round(100 * n)} %.`;
    said.textContent = text + (ending ? ` This run ends: ${ending}.` : "");
    slider.setAttribute("aria-valuetext", text);
  }

  function tick(now) {
    if (!playing) return;
    // From end to end in twelve seconds, whatever the screen's rate.
    const next = +slider.value + (now - last) / 12000 * (frames - 1);
    last = now;
    slider.value = Math.min(next, frames - 1);
    show();
    if (next >= frames - 1) stop(); else requestAnimationFrame(tick);
  }
  function stop() {
    playing = false;
    element("watch-play-word").textContent = "Play";
    sign(SIGNS.play);
  }

  play.addEventListener("click", () => {
    if (playing) { stop(); return; }
    if (+slider.value >= frames - 1.01) slider.value = 0;
    playing = true;
    element("watch-play-word").textContent = "Pause";
    sign(SIGNS.pause);
    last = performance.now();
    requestAnimationFrame(tick);
  });
  slider.addEventListener("input", () => { stop(); show(); });
  slider.addEventListener("keydown", event => {
    const strides = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 20, PageDown: -20 };
    if (!(event.key in strides)) return;
    event.preventDefault();
    stop();
    slider.value = Math.round(+slider.value) + strides[event.key];
    show();
  });
  const select = () => open(watched.cells.findIndex(one => one.dim === watched.dims[dim.value] && one.step === watched.steps[step.value]));
  dim.addEventListener("change", select);
  step.addEventListener("change", select);
  stories.forEach(button => button.addEventListener("click", () => { open(+button.dataset.story); stop(); slider.value = 0; play.click(); }));
  window.addEventListener("resize", show);
  report.onRedraw(show);
  open(stories.length ? +stories[0].dataset.story : 0);
}
