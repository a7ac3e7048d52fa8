/** The page of a comparison: the fronts of several runs on one split. */
const run = JSON.parse(document.getElementById("data").textContent);

const shown = { split: run.splits.at(-1), isZoomed: true, hidden: new Set() };

/** Beyond the palette's colors, shapes distinguish the runs. */
const SIDE_SHAPES = ["circle", "rect", "triangle", "diamond"];

function sideColor(scheme, index) {
  return scheme.palette[index % scheme.palette.length];
}

function sideShape(index) {
  return SIDE_SHAPES[index % SIDE_SHAPES.length];
}

function visibleSides() {
  return run.sides.map((side, index) => ({ ...side, index })).filter(({ index }) => !shown.hidden.has(index));
}

function beginFronts() {
  const container = unfold("fronts-chart");
  const holder = element("div", { class: "chart chart-large", id: "fronts-canvas", role: "img", "aria-label": run.title });
  const chart = new Chart(holder, frontsOptions);
  const legend = element("div", { class: "controls", role: "group", "aria-label": "Runs" });
  const update = () => {
    legend.replaceChildren(...legendButtons(update), ...limitItems());
    chart.redraw();
  };
  container.append(frontsControls(update), holder, legend);
  onTheme(update);
  update();
}

function frontsControls(update) {
  const parts = [];
  if (run.splits.length > 1) {
    const splits = run.splits.map((split) => [split, split]);
    parts.push(choiceGroup("split", "Scores on", splits, shown.split, (split) => {
      shown.split = split;
      update();
    }));
  }
  const zoom = element("button", { type: "button", "aria-pressed": String(shown.isZoomed) }, "Zoom to the fronts");
  zoom.addEventListener("click", () => {
    shown.isZoomed = !shown.isZoomed;
    zoom.setAttribute("aria-pressed", String(shown.isZoomed));
    update();
  });
  return element("div", { class: "controls" }, ...parts, zoom);
}

/** A button per run that shows or hides its front. */
function legendButtons(update) {
  const scheme = colors();
  return run.sides.map(({ label }, index) => {
    const isShown = !shown.hidden.has(index);
    const mark = legendMark(sideShape(index), { fill: isShown ? sideColor(scheme, index) : "none", stroke: sideColor(scheme, index) });
    const button = element("button", { type: "button", class: "run", "aria-label": `Show ${label}` }, mark, userText(label));
    button.setAttribute("aria-checked", String(isShown));
    button.setAttribute("role", "switch");
    button.addEventListener("click", () => {
      if (isShown) shown.hidden.add(index);
      else shown.hidden.delete(index);
      update();
      document.querySelectorAll("button.run")[index].focus();
    });
    return button;
  });
}

function limitItems() {
  const scheme = colors();
  const limits = run.limits[shown.split];
  const items = [legendItem(legendMark(STAR, { fill: scheme.knee, stroke: scheme.ink }), "knee")];
  if (limits.oracle) items.push(legendItem(legendMark("line", { stroke: scheme.soft, dashed: true }), "oracle: upper limit"));
  if (limits.reference) items.push(legendItem(legendMark(CROSS, { fill: scheme.ink }), "reference encoder R"));
  return [element("ul", { class: "legend" }, ...items)];
}

function frontsOptions() {
  const scheme = colors();
  const isNarrow = innerWidth < 640;
  const points = shown.isZoomed ? visibleSides().flatMap((side) => side.fronts[shown.split]) : [];
  const [limitsOfS, limitsOfP] = limitsAround(points.map((point) => point.value));
  return {
    animation: false,
    grid: { left: isNarrow ? 46 : 58, right: 16, top: 14, bottom: 48 },
    tooltip: tipStyle(scheme, frontsTip),
    xAxis: { type: "value", scale: true, nameGap: 28, ...axisStyle(scheme, `${run.labels.s} (×100)`, limitsOfS) },
    yAxis: { type: "value", scale: true, nameGap: isNarrow ? 30 : 38, ...axisStyle(scheme, `${run.labels.p} (×100)`, limitsOfP) },
    series: frontsSeries(scheme),
  };
}

function frontsSeries(scheme) {
  const { oracle, reference } = run.limits[shown.split];
  const series = [];
  if (oracle) {
    const lineStyle = { color: scheme.soft, width: 1.4, type: "dashed" };
    series.push({ id: "oracle", type: "line", silent: true, symbol: "none", lineStyle, data: oracle, z: 1 });
  }
  if (reference) {
    const data = [{ value: [reference.s, reference.p], name: "reference encoder R" }];
    series.push({ id: "reference", type: "scatter", symbol: CROSS, symbolSize: 13, itemStyle: { color: scheme.ink }, data, z: 2 });
  }
  for (const side of visibleSides()) series.push(...sideSeries(side, scheme));
  return series;
}

/** A run's staircase, its points and its knee. */
function sideSeries({ index, label, knee, fronts }, scheme) {
  const color = sideColor(scheme, index);
  const data = fronts[shown.split].map((point) => ({ ...point, side: label }));
  const line = {
    id: `front ${index}`,
    type: "line",
    silent: true,
    symbol: "none",
    step: "start",
    lineStyle: { color, width: 1.4 },
    data: nonDominated(data.map((point) => point.value)),
    z: 3,
  };
  const marks = { id: `points ${index}`, type: "scatter", symbol: sideShape(index), symbolSize: 9, itemStyle: { color }, data, z: 4 };
  const itemStyle = { color: scheme.knee, borderColor: scheme.ink, borderWidth: 1.2 };
  const star = { id: `knee ${index}`, type: "scatter", symbol: STAR, symbolSize: 19, itemStyle, data: data.filter((_, number) => number === knee), z: 5 };
  return [line, marks, star];
}

/** The values that no other value dominates, by increasing S. */
function nonDominated(values) {
  const corners = [];
  for (const value of [...values].sort((one, other) => other[0] - one[0] || other[1] - one[1])) {
    if (corners.length === 0 || value[1] > corners[0][1]) corners.unshift(value);
  }
  return corners;
}

function frontsTip({ name, side, value }) {
  const [s, p] = value;
  const title = element("strong", {}, ...(side ? [userText(side), " ", name] : [name]));
  return element("div", { class: "tip" }, title, facts([[run.labels.p, p.toFixed(1)], [run.labels.s, s.toFixed(1)]]));
}

beginTop();
beginFronts();
beginContents();
document.documentElement.dataset.ready = "true";
