"use strict";
// What all parts of the page share: its data, its numbers, its plots.
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const superscript = n => String(n).replace(/[-0-9]/g, c => c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[+c]);

  // Numbers as the rest of the page says them.
  function rounded(x, digits = 3) {
    if (x === null || x === undefined || !isFinite(x)) return "–";
    const size = Math.abs(x);
    if (x === 0 || (size >= 1e-3 && size < 1e5))
      return (+x.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6 }).replace("-", "−");
    const [front, back] = x.toExponential(digits - 1).split("e");
    const mantissa = String(+front).replace("-", "−");
    return (mantissa === "1" ? "" : mantissa + "·") + "10" + superscript(+back);
  }

  function element(name, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.textContent = text;
    return made;
  }

  // Powers of ten between two numbers, at most seven; where there is one, 2 and 5 times them too.
  function ticks(low, high) {
    const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
    const stride = Math.max(1, Math.ceil((last - first) / 6)), found = [];
    for (let power = first; power <= last; power += stride) found.push(10 ** power);
    if (found.length > 1) return found;
    return [first - 1, first].flatMap(power => [1, 2, 5].map(x => x * 10 ** power)).filter(x => x >= low && x <= high);
  }

  // Ticks in one notation: all as powers of ten, or none.
  function labels(values) {
    const powers = values.map(value => Math.log10(value)), whole = powers.every(power => Math.abs(power - Math.round(power)) < 1e-9);
    return values.map((value, i) => whole ? "10" + superscript(Math.round(powers[i])) : rounded(value));
  }

  // Curves on two logarithmic axes, each status named once above them.
  function plot(svg, curves, axes, about) {
    svg.setAttribute("aria-label", about);
    const inside = (x, y) => x !== null && y > 0 && x >= (axes.from || Number.MIN_VALUE) && x <= (axes.to || Infinity);
    const shown = curves.map(one => ({ ...one, points: one.x.map((x, i) => inside(x, one.y[i]) ? [x, one.y[i]] : null) }));
    const all = shown.flatMap(one => one.points).filter(Boolean);
    const legend = [...new Map(shown.filter(one => one.words).map(one => [one.words, one.colour]))];
    svg.replaceChildren(...legend.map(([words, colour], i) =>
      element("text", { x: 60 + 250 * (i % 2), y: 14 + 17 * Math.floor(i / 2), style: `fill:color-mix(in srgb, ${colour} 60%, var(--ink))` }, `– ${words}`)));
    if (!all.length) return;
    const box = { left: 60, right: 548, top: 12 + 17 * Math.ceil(legend.length / 2), bottom: 296 };
    const scale = (side, low, high) => {
      const ends = [0, 1].map(end => Math.log([Math.min, Math.max][end](...all.map(point => point[side]))));
      const room = 0.03 * (ends[1] - ends[0]) || 0.1;
      const at = value => low + (high - low) * (Math.log(value) - ends[0] + room) / (ends[1] - ends[0] + 2 * room);
      return [at, ticks(Math.exp(ends[0] - room), Math.exp(ends[1] + room))];
    };
    const [[x, across], [y, upward]] = [scale(0, box.left, box.right), scale(1, box.bottom, box.top)];
    svg.append(element("path", { d: [...across.map(t => `M${x(t)} ${box.top}V${box.bottom}`), ...upward.map(t => `M${box.left} ${y(t)}H${box.right}`)].join("") }),
      ...labels(across).map((label, i) => element("text", { x: x(across[i]), y: box.bottom + 16, "text-anchor": "middle", class: "tick" }, label)),
      ...labels(upward).map((label, i) => element("text", { x: box.left - 6, y: y(upward[i]) + 4, "text-anchor": "end", class: "tick" }, label)),
      element("text", { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" }, axes.x),
      element("text", { transform: `translate(12 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, axes.y),
      ...shown.map(one => element("path", {
        class: one.predicted ? "predicted" : "curve", style: `stroke:${one.colour}`,
        d: one.points.map((point, i) => point ? `${one.points[i - 1] ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}` : "").join(""),
      })));
  }

  document.querySelectorAll("[data-copy]").forEach(button => button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const aside = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(aside);
      aside.select();
      document.execCommand("copy");
      aside.remove();
      button.focus();
    }
    document.getElementById("copied").textContent = "Command copied";
    const before = button.firstChild.textContent;
    button.firstChild.textContent = "Copied ";
    setTimeout(() => { button.firstChild.textContent = before; }, 1500);
  }));

  return { data, rounded, plot };
})();

// A sentence under a trained model: weights are a softmax of the scores of its words.
report.data.sentences.forEach(model => {
  const place = document.querySelector(`[data-sentence="${model.name}"]`);
  const known = new Map(model.words.map((word, i) => [word, i]));
  const [field, marked, verdict] = [place.querySelector("textarea"), place.querySelector(".marked"), place.querySelector(".verdict-of-model")];
  function read() {
    const said = field.value.toLowerCase().match(/[\p{L}\p{N}_']+/gu) || [];
    const scores = said.map(word => known.has(word) ? model.scores[known.get(word)] : -Infinity);
    const highest = Math.max(...scores);
    const powers = scores.map(score => isFinite(score) ? Math.exp(score - highest) : 0);
    const total = powers.reduce((sum, power) => sum + power, 0);
    marked.replaceChildren();
    if (!total) { verdict.textContent = "No word of this is in the model's vocabulary."; return; }
    let output = 0;
    const weights = powers.map(power => power / total), heaviest = Math.max(...weights);
    said.forEach((word, i) => {
      const value = known.has(word) ? model.values[known.get(word)] : 0;
      output += weights[i] * value;
      const span = document.createElement("span");
      span.textContent = word;
      const [r, g, b] = value > 0 ? [213, 94, 0] : [0, 114, 178];
      span.style.background = `rgba(${r},${g},${b},${(0.45 * weights[i] / heaviest).toFixed(3)})`;
      span.title = known.has(word) ? `weight ${report.rounded(weights[i])}, E·v ${report.rounded(value)}` : "not in the vocabulary";
      marked.append(span, " ");
    });
    const chance = 1 / (1 + Math.exp(-Math.abs(output)));
    verdict.textContent = `f = ${report.rounded(output)}: ${output > 0 ? "positive" : "negative"}, with probability ` +
      `${report.rounded(chance)} by the model. Depth of colour is attention; orange speaks for positive, blue for negative.`;
  }
  field.addEventListener("input", read);
  read();
});
