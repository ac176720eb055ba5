// Asking: a worker of one's own, to which only the newest question of each kind matters.

/** Asks a worker; a question that was overtaken by a newer one of its kind is dropped before it is computed. */
export class Asker {
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #waiting = new Map(); // kind → the newest question that is not sent yet
  #sent = null;
  #next = 0;

  constructor(url = null) {
    this.url = url;
    this.#worker.addEventListener("message", ({ data }) => this.#answered(data));
    this.#worker.addEventListener("error", (event) =>
      this.#answered({ id: this.#sent?.id, error: event.message }),
    );
  }

  /** Ask for a job; `then(result, ms)` is called unless a newer question of this kind was asked before it was sent. */
  ask(kind, job, request, then) {
    this.#waiting.set(kind, { id: this.#next++, job, request, then });
    this.#send();
  }

  get busy() {
    return this.#sent !== null || this.#waiting.size > 0;
  }

  #send() {
    if (this.#sent || !this.#waiting.size) return;
    const [kind, question] = this.#waiting.entries().next().value;
    this.#waiting.delete(kind);
    this.#sent = question;
    this.#worker.postMessage({
      id: question.id,
      job: question.job,
      url: this.url,
      request: question.request,
    });
  }

  #answered({ id, result, ms, error }) {
    const question = this.#sent;
    if (!question || question.id !== id) return;
    this.#sent = null;
    this.#send(); // the worker computes while the page draws
    if (error) {
      console.error(`${question.job}: ${error}`);
      dispatchEvent(new CustomEvent("playground-error", { detail: error }));
    } else question.then(result, ms);
  }
}
