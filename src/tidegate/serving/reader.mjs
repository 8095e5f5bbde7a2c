// The probabilities of a policy that `tidegate improve` saved, for one row: { age: 34, country: "DE" }.
//   const policy = JSON.parse(await readFile("policy.json", "utf8"));
//   probabilities(policy, row)[i] is the probability of policy.actions[i]
export function probabilities(policy, row) {
  if (policy.kind !== "policy" || policy.format !== 2) throw new Error("this is not a policy of format 2");
  const logits = outputs(policy, row).map((one) => one ?? -Infinity); // null is an action that is never taken
  const highest = logits.reduce((a, b) => Math.max(a, b));
  const weights = logits.map((one) => Math.exp(one - highest));
  const least = policy.min_probability, total = weights.reduce((a, b) => a + b);
  return weights.map((one) => least + (1 - weights.length * least) * (one / total));
}

function outputs({ policy, parameters, features }, row) {
  const inputs = features.flatMap((one) => encoded(one, row));
  const layer = ({ weights, bias }, given) =>
    bias.map((start, a) => start === null ? null : given.reduce((sum, x, i) => sum + x * weights[i][a], start));
  if (parameters.logits) return parameters.logits;
  if (parameters.layers)
    return parameters.layers.reduce((given, one, i) => layer(one, i ? given.map(Math.tanh) : given), inputs);
  if (policy === "LinearPolicy") return layer(parameters, inputs);
  const found = parameters.table?.[inputs[0]];
  if (!found) throw new Error(`a ${policy} has no probabilities for ${JSON.stringify(row)}`);
  return found;
}

function encoded({ name, categories }, row) {
  const value = Object.hasOwn(row, name) ? row[name] : undefined;
  const number = typeof value === "boolean" ? Number(value) : value;
  if (categories ? !categories.includes(value) : !Number.isFinite(number))
    throw new Error(`'${name}' is ${JSON.stringify(value)}; expected ${categories ?? "a finite number"}`);
  return categories ? categories.map((one) => Number(one === value)) : [number];
}
