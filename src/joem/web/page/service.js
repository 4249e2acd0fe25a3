// Calls of the REST API: the token, errors as exceptions, patience when the service is busy.

const ATTEMPTS = 4;

export class Problem extends Error {
  constructor(status, { message, word, near }) {
    super(message);
    Object.assign(this, { status, word, near });
  }
}

export async function call(path, options = {}) {
  for (let attempt = 1; ; attempt++) {
    const response = await send(path, options);
    if (response.ok) return response;
    const problem = new Problem(response.status, await describe(response));
    if (response.status === 401) await askForToken();
    else if ([429, 503].includes(response.status) && attempt < ATTEMPTS) await wait(attempt);
    else throw problem;
  }
}

export function post(path, request, signal) {
  return call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request), signal });
}

async function send(path, options) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  try {
    return await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { message: "The service does not answer. Is it still running?" });
  }
}

async function describe(response) {
  try {
    return await response.json();
  } catch {
    return { message: `The service answered ${response.status}.` };
  }
}

let asking = null; // several calls may be refused at once: they share one dialog

function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem("token", document.getElementById("token").value);
      asking = null;
      resolve();
    }, { once: true });
    dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
    dialog.showModal();
  });
  return asking;
}

function wait(seconds) {
  return new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
}
