/** Slices: a score of every trial's best point against one parameter at a time. */

let sliceMeasure = "objective";

function beginSlices() {
  const place = unfold("slices-chart");
  if (!place) return;
  const grid = element("div", { class: "grid" });
  const charts = run.parameters.map((parameter, number) => slice(parameter, number, grid));
  const redraw = () => charts.forEach((chart) => chart.redraw());
  const measure = selectBox("Score", MEASURES, sliceMeasure, (name) => {
    sliceMeasure = name;
    redraw();
  });
  place.append(element("div", { class: "controls" }, measure), grid);
  onSelection((names) => {
    if (["selected", "colour", "pinned"].some((name) => names.has(name))) redraw();
  });
}

function slice(parameter, number, grid) {
  const holder = element("div", { class: "chart chart-small", role: "img", "aria-label": `Slice: ${parameter.name}` });
  grid.append(element("div", {}, element("h3", {}, userText(parameter.name)), holder));
  return new Chart(holder, () => sliceOptions(parameter, number), (chart) => {
    chart.on("click", (event) => pinTrial(event.data));
  });
}

function sliceOptions(parameter, number) {
  const scheme = colours();
  const isCategory = parameter.kind === "category";
  const axis = axisStyle(scheme, "");
  axis.axisLabel = { ...axis.axisLabel, ...(isCategory ? categoryLabels(parameter) : { formatter: shortNumber }) };
  const type = isCategory ? "category" : parameter.log ? "log" : "value";
  return {
    animation: false,
    grid: { left: 44, right: 14, top: 12, bottom: 28 },
    tooltip: tipStyle(scheme, tip),
    xAxis: { type, scale: true, data: isCategory ? parameter.values : undefined, ...axis },
    yAxis: { type: "value", scale: true, ...scoreExtent(), ...axisStyle(scheme, "") },
    series: [{ id: "trials", type: "scatter", data: sliceMarks(parameter, number, scheme) }],
  };
}

/** All of them where they are few, each cut to its room. */
function categoryLabels(parameter) {
  const isFew = parameter.values.length <= 6;
  return { interval: isFew ? 0 : "auto", width: Math.max(34, 215 / parameter.values.length), overflow: "truncate" };
}

/** Of all trials, so that the slices can be compared. */
function scoreExtent() {
  const scores = trials.map((trial) => bestMeasure(trial, sliceMeasure)).filter((score) => score != null);
  if (scores.length === 0) return {};
  const low = Math.min(...scores);
  const high = Math.max(...scores);
  const margin = 0.04 * (high - low) || 0.5;
  return { min: Math.floor(low - margin), max: Math.ceil(high + margin) };
}

function sliceMarks(parameter, number, scheme) {
  const paint = colouring();
  const isDense = trials.length > 200;
  const pinnedTrial = selection.pinned === null ? null : placeOfTrial.get(points.trial[selection.pinned]);
  const marks = [];
  trials.forEach((trial, place) => {
    const value = trial.values[number];
    const score = bestMeasure(trial, sliceMeasure);
    if (value == null || score == null) return;
    const isPinned = place === pinnedTrial;
    const isSelected = isTrialSelected(place);
    const itemStyle = { color: isSelected ? paint.of(trial) : scheme.line, opacity: isSelected ? 0.75 : 0.5 };
    if (isPinned) Object.assign(itemStyle, { borderColor: scheme.ink, borderWidth: 2, opacity: 1 });
    const at = [parameter.kind === "category" ? String(value) : value, score];
    marks.push({ value: at, symbol: STATUS_SHAPES[trial.status] || "circle", symbolSize: isPinned ? 13 : isDense ? 5 : 7, itemStyle, trial: place });
  });
  return marks;
}
