// Who may run beside whom: commands that hold what they must not change as mounts run together; one that could swap a name
// another's mount is about to follow runs alone. In the order they came, so that nobody waits for ever.

export class Turns {
  #running = 0;
  #alone = false;
  readonly #waiting: { readonly alone: boolean; readonly begin: () => void }[] = [];

  /** Wait for a turn; the function that is given ends it. */
  async take(alone: boolean): Promise<() => void> {
    await new Promise<void>((begin) => {
      this.#waiting.push({ alone, begin });
      this.#next();
    });
    let over = false;
    return () => {
      if (!over) {
        over = true;
        this.#running -= 1;
        this.#alone = false;
        this.#next();
      }
    };
  }

  #next(): void {
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting[0]) {
      if (this.#alone || (first.alone && this.#running > 0)) {
        return;
      }
      this.#waiting.shift();
      this.#running += 1;
      this.#alone = first.alone;
      first.begin();
    }
  }
}
