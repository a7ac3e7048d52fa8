/** Learning curves: a line a trial, which ends in how the trial stands. */

function beginCurves() {
  const place = unfold("curves-chart");
  if (!place) return;
  const holder = element("div", { class: "chart chart-middle", role: "img", "aria-label": "Learning curves" });
  const measure = selectBox("Score", MEASURES, selection.measure, (name) => change({ measure: name }));
  const legend = element("ul", { class: "legend", "aria-label": "Legend of the ends of the lines" });
  place.append(element("div", { class: "controls" }, measure), holder, legend);
  const chart = new Chart(holder, curveOptions, (made) => {
    made.on("click", (event) => pinTrial(event.data));
  });
  const drawLegend = () => legend.replaceChildren(...statusLegend());
  drawLegend();
  onTheme(drawLegend);
  onSelection((names) => {
    if (["selected", "measure", "colour", "pinned"].some((name) => names.has(name))) chart.redraw();
  });
}

/** Pins the best point of the trial that a mark stands for. */
function pinTrial(mark) {
  if (mark && mark.trial != null && trials[mark.trial].best != null) pin(trials[mark.trial].best);
}

function statusLegend() {
  const scheme = colours();
  const present = new Set(trials.filter((trial) => trial.rungs.length).map((trial) => trial.status));
  return run.statuses
    .filter(({ status }) => present.has(status))
    .map(({ status, words }) => element("li", {}, legendMark(STATUS_SHAPES[status], { fill: scheme.ink }), words));
}

function curveOptions() {
  const scheme = colours();
  const paint = colouring();
  const column = RUNG_FIELDS[selection.measure];
  const isNarrow = innerWidth < 640;
  const seen = trials.flatMap((trial) => trial.rungs.map((rung) => rung[0])).filter((number) => number > 0);
  const isLog = seen.length > 0 && Math.max(...seen.slice(0, 50000)) > 8 * Math.min(...seen.slice(0, 50000));
  const name = MEASURES.find(([key]) => key === selection.measure)[1];
  const examplesAxis = { ...axisStyle(scheme, "training examples seen"), nameGap: 28 };
  examplesAxis.axisLabel = { ...examplesAxis.axisLabel, formatter: shortCount };
  return {
    animation: false,
    grid: { left: isNarrow ? 46 : 58, right: 18, top: 14, bottom: 48 },
    tooltip: tipStyle(scheme, tip),
    xAxis: { type: isLog ? "log" : "value", logBase: isLog ? 2 : undefined, scale: true, ...examplesAxis },
    yAxis: { type: "value", scale: true, nameGap: isNarrow ? 30 : 38, ...axisStyle(scheme, `${name} (×100)`) },
    series: curveSeries(scheme, paint, column),
  };
}

function shortCount(number) {
  if (number >= 1e6) return `${Number((number / 1e6).toPrecision(3))}M`;
  return number >= 1e4 ? `${Number((number / 1e3).toPrecision(3))}k` : String(Math.round(number));
}

function curveSeries(scheme, paint, column) {
  const lines = [];
  const ends = [];
  const pinnedTrial = selection.pinned === null ? null : placeOfTrial.get(points.trial[selection.pinned]);
  const isDense = trials.length > 100;
  trials.forEach((trial, place) => {
    const coords = trial.rungs.filter((rung) => rung[column] != null).map((rung) => [rung[0], rung[column]]);
    if (coords.length === 0 || !isTrialSelected(place)) return;
    const isPinned = place === pinnedTrial;
    const colour = isPinned ? scheme.ink : paint.of(trial);
    const opacity = isPinned ? 1 : isDense ? 0.35 : 0.75;
    if (coords.length > 1) {
      const lineStyle = { color: colour, opacity, width: isPinned ? 3 : 1.4 };
      lines.push({ coords, lineStyle, trial: place });
    }
    const itemStyle = { color: colour, opacity: isPinned ? 1 : isDense ? 0.6 : 0.9 };
    ends.push({ value: coords[coords.length - 1], symbol: STATUS_SHAPES[trial.status] || "circle", itemStyle, trial: place });
  });
  return [
    { id: "lines", type: "lines", coordinateSystem: "cartesian2d", polyline: true, data: lines, z: 2, zlevel: 0 },
    { id: "ends", type: "scatter", symbolSize: isDense ? 5 : 8, data: ends, z: 3 },
  ];
}
