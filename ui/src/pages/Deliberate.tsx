// A button for what must not happen by accident, with the guard the approval cards have: inert for a moment after it appears
// or moves, deaf to keys that were held or pressed elsewhere. It never takes the focus by itself.

import type { ReactNode } from "react";
import { useGuard } from "../cards/guard";

interface Props {
  className: string;
  disabled?: boolean;
  onPress: () => void;
  children: ReactNode;
}

export function Deliberate({ className, disabled = false, onPress, children }: Props) {
  const guard = useGuard();
  return (
    <button className={className} {...guard.button(onPress, disabled)}>
      {children}
    </button>
  );
}
