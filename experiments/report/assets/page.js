"use strict";
// What all parts of the page share: its data, its theme, its charts.
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const redraws = [];
  let ready = false;

  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const theme = () => ({ ink: css("--ink"), soft: css("--soft"), rule: css("--rule"), paper: css("--raised") });
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

  // The library reads a little markup; text of others is to be text, cut and isolated.
  const lowered = text => text.replace(/_(mm|s)\b/g, "<sub>$1</sub>");
  const plain = text => "\u2068" + String(text).slice(0, 60).replace(/&/g, "&amp;").replace(/</g, "&lt;") + "\u2069";

  // Powers of ten alone where there are enough of them.
  function powers(values) {
    const logs = values.filter(x => x > 0).map(Math.log10);
    const span = logs.reduce((high, x) => Math.max(high, x), -Infinity) - logs.reduce((low, x) => Math.min(low, x), Infinity);
    return span > 1.5 ? Math.max(1, Math.ceil(span / 7)) : span > 0.9 ? "D2" : undefined;
  }

  function axis(spec, look, values) {
    const made = {
      title: { text: lowered(plain(spec.title)), font: { size: 13 }, standoff: 8 }, type: spec.log ? "log" : "linear",
      gridcolor: look.rule, linecolor: look.rule, zerolinecolor: look.rule, tickfont: { size: 11 }, automargin: true,
    };
    if (spec.log) Object.assign(made, { exponentformat: "power", dtick: powers(spec.range || values) });
    if (spec.range) made.range = spec.log ? spec.range.map(Math.log10) : spec.range;
    if (spec.ticks) Object.assign(made, { tickvals: spec.ticks.map((_, i) => i), ticktext: spec.ticks.map(plain) });
    return made;
  }

  function trace(one) {
    const colour = typeof one.colour === "number" ? data.series[one.colour % data.series.length] : one.colour;
    const made = {
      x: one.x, y: one.y, name: lowered(plain(one.name)), showlegend: one.legend !== false && Boolean(one.name),
      hovertemplate: (one.text ? "%{text}<br>" : "") + "%{x:.4~g}, %{y:.4~g}<extra>" + plain(one.name) + "</extra>",
    };
    if (one.text) made.text = one.text.map(plain);
    if (one.kind === "bars") return { ...made, type: "bar", marker: { color: colour } };
    const many = one.x.length > 600;
    made.mode = one.kind === "dots" ? "markers" : one.kind === "points" ? "lines+markers" : "lines";
    made.line = { color: colour, width: one.kind === "dash" ? 1.3 : 1.8, dash: one.kind === "dash" ? "5px,4px" : "solid" };
    made.marker = { color: colour, size: one.kind === "dots" ? (many ? 3 : 6) : 5, opacity: many ? 0.35 : 0.9 };
    if (one.spread) made.error_y = { type: "data", array: one.spread, color: colour, thickness: 1, width: 2 };
    return made;
  }

  function draw(place, spec, about) {
    const look = theme();
    const shown = spec.series.map(trace);
    const named = shown.filter(one => one.showlegend).length;
    // Anew each time: a changed plot would forget the range of its logarithmic axes.
    Plotly.newPlot(place, shown, {
      xaxis: axis(spec.x, look, spec.series.flatMap(one => one.x)), yaxis: axis(spec.y, look, spec.series.flatMap(one => one.y)), font: { family: "system-ui, sans-serif", color: look.ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 10, r: 12, t: 8, b: 8 }, bargap: 0.25,
      showlegend: named > 1, hovermode: "closest", legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
      barmode: "group",
    }, { displayModeBar: false, responsive: true });
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", about);
  }

  // Charts are drawn as they come near the window, all of them before printing.
  function charts() {
    const places = [...document.querySelectorAll("[data-chart]")];
    const show = place => {
      place.dataset.drawn = "yes";
      draw(place, data.charts[place.dataset.chart], place.dataset.about);
    };
    const watcher = new IntersectionObserver(seen => seen.forEach(one => {
      if (!one.isIntersecting) return;
      watcher.unobserve(one.target);
      if (!one.target.dataset.drawn) show(one.target);
    }), { rootMargin: "400px" });
    places.forEach(place => watcher.observe(place));
    redraws.push(() => places.filter(place => place.dataset.drawn).forEach(show));
    window.addEventListener("beforeprint", () => places.filter(place => !place.dataset.drawn).forEach(show));
  }

  async function packed(id) {
    const letters = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(letters, letter => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  async function unpack() {
    // Two frames: the page has been painted by then.
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    watching(JSON.parse(await packed("watch-data")));
    const program = document.createElement("script");
    program.textContent = await packed("library");
    document.head.append(program);
    ready = true;
    charts();
    redraws.forEach(redraw => redraw());
    document.documentElement.dataset.ready = "yes";
  }

  dark.addEventListener("change", () => redraws.forEach(redraw => redraw()));

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

  return { data, rounded, superscript, draw, theme, unpack, onRedraw: f => redraws.push(f), isReady: () => ready };
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
