// Sends events to an actor of XState for as long as each line on stdin says, and answers the rate.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , module, shapes, burst] = process.argv;
const { createActor, createMachine } = await import(pathToFileURL(module).href);
const guards = { positive: ({ context }) => context.n > 0 };

function rate(document, seconds) {
  const actor = createActor(createMachine(document, { guards })).start();
  const event = { type: "TOGGLE" };
  const started = process.hrtime.bigint();
  let done = 0;
  let elapsed = 0;
  while (elapsed < seconds) {
    for (let index = 0; index < Number(burst); index += 1) actor.send(event);
    done += Number(burst);
    elapsed = Number(process.hrtime.bigint() - started) / 1e9;
  }
  actor.stop();
  return done / elapsed;
}

const documents = JSON.parse(shapes);
for await (const line of createInterface({ input: process.stdin })) {
  const [shape, seconds] = JSON.parse(line);
  console.log(JSON.stringify(rate(documents[shape], seconds)));
}
