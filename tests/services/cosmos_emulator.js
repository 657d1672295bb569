// Serves the npm package @vercel/cosmosdb-server as Azure Cosmos DB would answer, for tests.
//
//     node cosmos_emulator.js FOLDER_OF_THE_PACKAGE PORT ACCOUNT_KEY [--multi-write]
//
// Corrects what the package does otherwise than the service, and nothing else: the read of a missing
// item answers 404 (the package trips over it and answers 500), and a request that is not signed with the
// account's key answers 401 (the package lets everybody in). With --multi-write the account says
// that it writes in several regions. Prints one line when it listens.
"use strict";

const { createHmac, timingSafeEqual } = require("crypto");
const { join } = require("path");

const [folder, port, key, ...flags] = process.argv.slice(2);
const { createHttpServer } = require(folder);
const { version } = require(join(folder, "package.json"));
const secret = Buffer.from(key, "base64");

// The resource that a signature names: the path without its last segment where that is a type.
function resourceOf(url) {
  const parts = decodeURIComponent(url.split("?")[0]).split("/").filter(Boolean);
  const isFeed = parts.length % 2 === 1;
  const type = parts.length ? parts[isFeed ? parts.length - 1 : parts.length - 2] : "";
  return { type, link: (isFeed ? parts.slice(0, -1) : parts).join("/") };
}

function isSigned(request) {
  const given = decodeURIComponent(request.headers.authorization || "");
  const signature = /^type=master&ver=1\.0&sig=(.+)$/.exec(given);
  if (!signature) return false;
  const { type, link } = resourceOf(request.url);
  const date = (request.headers["x-ms-date"] || "").toLowerCase();
  const text = `${request.method.toLowerCase()}\n${type}\n${link}\n${date}\n\n`;
  const expected = createHmac("sha256", secret).update(text, "utf8").digest();
  const found = Buffer.from(signature[1], "base64");
  return found.length === expected.length && timingSafeEqual(found, expected);
}

function refuse(response, status, code) {
  response.writeHead(status, { "content-type": "application/json", "x-ms-request-charge": "0" });
  response.end(JSON.stringify({ code, message: code }));
}

function correct(request, response) {
  const end = response.end.bind(response);
  const { type, link } = resourceOf(request.url);
  response.end = body => {
    const tripped = response.statusCode === 500 && String(body).includes("of undefined (reading");
    if (request.method === "GET" && type === "docs" && tripped) {
      response.statusCode = 404;
      return end(JSON.stringify({ code: "NotFound", message: "no such item" }));
    }
    if (link === "" && type === "" && flags.includes("--multi-write")) {
      return end(JSON.stringify({ ...JSON.parse(body), enableMultipleWriteLocations: true }));
    }
    return end(body);
  };
}

const server = createHttpServer({ keepAlive: true });
const [serve] = server.listeners("request");
server.removeAllListeners("request");
server.on("request", (request, response) => {
  // A request that came through a proxy names the whole address.
  request.url = request.url.replace(/^http:\/\/[^/]+/, "");
  if (!isSigned(request)) {
    refuse(response, 401, "Unauthorized");
    return;
  }
  correct(request, response);
  serve(request, response);
});
// Five seconds, the default, are shorter than the pauses of a test.
server.keepAliveTimeout = 120_000;
server.listen(Number(port), "127.0.0.1", () => console.log(`ready ${version}`));
