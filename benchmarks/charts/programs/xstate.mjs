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

// One event for each of ten thousand actors, over and over.
let actors = null;
function crowd(document, seconds) {
  const machine = createMachine(document, { guards });
  actors ??= Array.from({ length: 10000 }, () => createActor(machine).start());
  const event = { type: "TOGGLE" };
  const started = process.hrtime.bigint();
  let done = 0;
  let elapsed = 0;
  while (elapsed < seconds) {
    for (const actor of actors) actor.send(event);
    done += actors.length;
    elapsed = Number(process.hrtime.bigint() - started) / 1e9;
  }
  return done / elapsed;
}

const documents = JSON.parse(shapes);
for await (const line of createInterface({ input: process.stdin })) {
  const [shape, seconds] = JSON.parse(line);
  const found = shape === "crowd" ? crowd(documents.flat, seconds) : rate(documents[shape], seconds);
  console.log(JSON.stringify(found));
}
