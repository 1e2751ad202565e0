"use strict";
// The phase diagram: counts under the pointer or the focus, curves of the cell chosen.
document.querySelectorAll("[data-phase]").forEach(place => {
  const number = +place.dataset.phase, phase = report.data.phases[number];
  const names = Object.keys(report.data.palette), looks = Object.values(report.data.palette);
  const buttons = [...place.querySelectorAll(".map button")], panel = place.querySelector("[data-cell]");
  const width = phase.dims.length, height = phase.steps.length;
  const at = (row, column) => buttons[row * width + column];
  const where = button => [+button.dataset.row, +button.dataset.column];
  let chosen = null;

  function describe(button) {
    const [row, column] = where(button), codes = phase.cells[row * width + column];
    const counts = new Map();
    codes.forEach((code, run) => counts.set(code, [...(counts.get(code) || []), run]));
    const title = document.createElement("h3");
    title.textContent = `d = ${report.rounded(phase.dims[column])}, η₀ = ${report.rounded(phase.steps[row])}`;
    const list = document.createElement("ul");
    [...counts].sort((a, b) => a[0] - b[0]).forEach(([code, runs]) => {
      const item = document.createElement("li"), dot = document.createElement("span"), small = document.createElement("small");
      dot.className = `dot ${names[code]}`;
      dot.style.backgroundColor = looks[code].colour;
      small.textContent = codes.length === phase.seeds.length && runs.length <= 16
        ? ` — seed${runs.length > 1 ? "s" : ""} ${runs.map(run => phase.seeds[run]).join(", ")}` : "";
      item.append(dot, `${runs.length} ${looks[code].words}`, small);
      list.append(item);
    });
    const total = document.createElement("p");
    total.textContent = codes.length === 1 ? "1 run" : `${codes.length} runs`;
    panel.replaceChildren(title, total, list);
  }

  function curves() {
    if (!chosen || !phase.curves.length) return;
    const [row, column] = where(chosen), cell = row * width + column;
    const said = `of the runs at d = ${report.rounded(phase.dims[column])}, η₀ = ${report.rounded(phase.steps[row])}`;
    const growth = [], direction = [];
    phase.curves[cell].forEach(([times, norms, errors], run) => {
      const code = phase.cells[cell][run], { colour, words } = looks[code];
      const [slope, constant] = phase.numbers[cell][run];
      const certified = report.data.certified.includes(names[code]);
      growth.push({ words, colour, x: times, y: norms });
      if (certified && slope) growth.push({ colour, predicted: true, x: times, y: times.map(t => slope * t) });
      if (!certified) return;
      direction.push({ words, colour, x: norms, y: errors });
      if (constant) direction.push({ colour, predicted: true, x: norms, y: norms.map(norm => constant / norm) });
    });
    report.plot(document.getElementById(`growth-${number}`), growth, { x: "log(1 + t)", y: "‖p‖" },
      `Growth of the norm of p against log t ${said}`);
    report.plot(document.getElementById(`direction-${number}`), direction,
      { x: "‖p‖", y: "‖p/‖p‖ − p_mm/‖p_mm‖‖", from: 1, to: 1.3 * phase.until }, `Direction error against the norm of p ${said}`);
  }

  function choose(button) {
    if (chosen) chosen.setAttribute("aria-pressed", "false");
    chosen = button;
    button.setAttribute("aria-pressed", "true");
    describe(button);
    curves();
  }

  function move(button, row, column) {
    const next = at(Math.min(height - 1, Math.max(0, row)), Math.min(width - 1, Math.max(0, column)));
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  const map = place.querySelector(".map");
  const cellOf = event => event.target.closest(".map button");
  map.addEventListener("mouseover", event => { if (cellOf(event)) describe(cellOf(event)); });
  map.addEventListener("mouseleave", () => { if (chosen) describe(chosen); });
  map.addEventListener("focusin", event => { if (cellOf(event)) describe(cellOf(event)); });
  map.addEventListener("click", event => {
    const button = cellOf(event);
    if (!button) return;
    buttons.forEach(other => { other.tabIndex = other === button ? 0 : -1; });
    choose(button);
  });
  map.addEventListener("keydown", event => {
    const button = cellOf(event);
    if (!button) return;
    const [row, column] = where(button);
    const moves = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1], Home: [row, 0], End: [row, width - 1], PageUp: [0, column], PageDown: [height - 1, column] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    move(button, ...moves[event.key]);
  });

  // Where a value lies between the centres of cells, on their logarithmic axis.
  function between(values, centres, value) {
    const [x, all] = [Math.log(value), values.map(Math.log)];
    let i = 0;
    while (i < all.length - 2 && (all[i + 1] - x) * (all[i + 1] - all[i]) < 0) i += 1;
    return centres[i] + (x - all[i]) / (all[i + 1] - all[i]) * (centres[i + 1] - centres[i]);
  }

  function edges() {
    map.querySelectorAll("svg").forEach(old => old.remove());
    if (!phase.edges.length || width < 2 || height < 2) return;
    const frame = map.getBoundingClientRect();
    const boxes = buttons.map(button => button.getBoundingClientRect());
    const [first, last] = [boxes[0], boxes[boxes.length - 1]];
    const centre = (box, side) => side === "x" ? box.left + box.width / 2 - first.left : box.top + box.height / 2 - first.top;
    const across = phase.dims.map((_, column) => centre(boxes[column], "x"));
    const upward = phase.steps.map((_, row) => centre(boxes[row * width], "y"));
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const [wide, high] = [last.right - first.left, last.bottom - first.top];
    svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    svg.setAttribute("aria-hidden", "true");
    Object.assign(svg.style, { left: `${first.left - frame.left}px`, top: `${first.top - frame.top}px`,
      width: `${wide}px`, height: `${high}px`, overflow: "hidden" });
    phase.edges.forEach(edge => {
      const points = edge.dims.map((dim, i) => [between(phase.dims, across, dim), between(phase.steps, upward, edge.steps[i])]);
      if (points.length < 2) return;
      ["halo", ""].forEach(role => {
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("class", `edge ${edge.name.split("_")[0]} ${role} ${edge.pale ? "pale" : ""}`);
        path.setAttribute("d", "M" + points.map(point => point.map(x => x.toFixed(1)).join(" ")).join("L"));
        svg.append(path);
      });
    });
    map.append(svg);
  }

  new ResizeObserver(edges).observe(map);
  // To begin with: the middle of the diagram, where the phases meet.
  choose(at(Math.floor(height / 3), Math.floor(width / 2)));
});
