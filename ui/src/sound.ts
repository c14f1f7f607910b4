// Two soft tones, made here: no file, no request.

/** A sound that could not begin by then does not begin later, out of nowhere. */
const SOON_MS = 300;

let context: AudioContext | null = null;

function theContext(): AudioContext | null {
  if (!("AudioContext" in window)) return null;
  context ??= new AudioContext();
  return context;
}

/** Makes ready for a sound with the first press on the page, where one is wanted. */
export function unlockSound(wanted: () => boolean): void {
  const ready = new AbortController();
  const pressed = () => {
    if (!wanted()) return;
    ready.abort();
    void theContext()?.resume();
  };
  document.addEventListener("pointerdown", pressed, { signal: ready.signal });
  document.addEventListener("keydown", pressed, { signal: ready.signal });
}

export async function sound(): Promise<void> {
  const playing = theContext();
  if (!playing) return;
  await Promise.race([playing.resume(), new Promise((resolve) => setTimeout(resolve, SOON_MS))]);
  if (playing.state !== "running") return;
  [660, 880].forEach((pitch, index) => {
    const start = playing.currentTime + index * 0.16;
    const tone = playing.createOscillator();
    const loudness = playing.createGain();
    tone.frequency.value = pitch;
    loudness.gain.setValueAtTime(0, start);
    loudness.gain.linearRampToValueAtTime(0.12, start + 0.02);
    loudness.gain.exponentialRampToValueAtTime(0.001, start + 0.3);
    tone.connect(loudness).connect(playing.destination);
    tone.start(start);
    tone.stop(start + 0.32);
  });
}
