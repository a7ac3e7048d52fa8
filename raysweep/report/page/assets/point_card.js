/** Descriptions of a point for tooltips, the pinned card and screen readers. */

function pointTitle(index) {
  return `Trial ${points.trial[index]}, rung ${points.step[index]}, ${kindName(index)}`;
}

function marksOf(index) {
  const member = memberOfPoint.get(index);
  if (!member) return [];
  const marks = ["on the front"];
  if (member.knee) marks.push("★ knee");
  if (member.best) marks.push("◆ best objective");
  if (Object.values(member.intervals).some((certainty) => certainty && certainty.inKneeRegion)) marks.push("in the knee region");
  for (const missed of member.misses) marks.push(`misses ${missed}`);
  return marks;
}

/** The varied parameters that apply to a trial. */
function configurationOf(trial, maxLength = 40) {
  const pairs = run.parameters.map((parameter, index) => [parameter.name, trial.values[index]]);
  return pairs.filter(([, value]) => value != null).map(([name, value]) => [userText(shortValue(name)), userText(shortValue(value, maxLength))]);
}

function intervalText(member, split, score) {
  const interval = member && member.intervals[split] && member.intervals[split][score];
  return interval ? ` (${shownScore(interval[0])} to ${shownScore(interval[1])})` : "";
}

function scorePairs(index, split) {
  const scores = scoresOn(index, split);
  if (!scores) return [];
  const member = memberOfPoint.get(index);
  const isShown = ({ key }) => scores[key] != null || rungScores.some((score) => score.key === key);
  const pairs = run.scores.filter(isShown).map(({ heading, key }) => [heading, shownScore(scores[key]) + intervalText(member, split, key)]);
  const certainty = member && member.intervals[split];
  if (certainty && certainty.stability != null) pairs.push(["stability", shownShare(certainty.stability)]);
  return pairs;
}

const MAX_TIP_VALUES = 10;

/** The tooltip of a mark, which is a trial's point, a trial, or a point that does not come from a trial. */
function tip(mark) {
  if (!mark) return "";
  if (mark.point != null) return pointTip(mark.point);
  if (mark.trial != null) return trialTip(trials[mark.trial]);
  if (!mark.scores) return "";
  const isShown = ({ key }) => key === "p" || key === "s" || mark.scores[key] != null;
  const pairs = rungScores.filter(isShown).map(({ heading, key }) => [heading, shownScore(mark.scores[key])]);
  return element("div", { class: "tip" }, element("strong", {}, userText(shortValue(mark.name))), facts(pairs));
}

function pointTip(index) {
  const marks = marksOf(index);
  const configuration = configurationOf(trialOfPoint(index)).slice(0, MAX_TIP_VALUES);
  return element(
    "div",
    { class: "tip" },
    element("strong", {}, pointTitle(index)),
    marks.length ? element("div", {}, marks.join(", ")) : null,
    facts([...scorePairs(index, selection.split), ...configuration]),
  );
}

function trialTip(trial) {
  const best = trial.best;
  const scores = [
    ["objective", shownScore(trial.objective)],
    [headingP, shownScore(bestMeasure(trial, "p"))],
    [headingS, shownScore(bestMeasure(trial, "s"))],
    ["rungs", String(trial.rungs.length)],
  ];
  return element(
    "div",
    { class: "tip" },
    element("strong", {}, best == null ? `Trial ${trial.trial}` : `Trial ${trial.trial}, best point ${kindName(best)}`),
    element("div", {}, standingOf(trial)),
    facts([...scores, ...configurationOf(trial).slice(0, MAX_TIP_VALUES)]),
  );
}

/** A point in one line for screen readers. */
function spokenPoint(index) {
  const scores = scorePairs(index, selection.split).map(([name, value]) => `${name} ${value}`);
  const marks = marksOf(index);
  return [pointTitle(index), ...marks, ...scores].join(", ");
}

/** A trial in one line, with the values that a chart shows. */
function spokenTrial(trial, words) {
  return [`Trial ${trial.trial}`, standings.get(trial.standing).words, ...words].join(", ");
}
