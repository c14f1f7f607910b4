// The text of an answer whose sender is not trusted: read up to a limit and no further, so that who sends without end
// fills no memory.

/** The whole text; null when there is more of it than `most` bytes, and then the rest is not read. */
export async function boundedText(body: AsyncIterable<Uint8Array> | null, most: number): Promise<string | null> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of body ?? []) {
    size += piece.length;
    if (size > most) return null; // leaving the loop ends the stream
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}
