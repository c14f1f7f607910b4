// A small button with a menu. Nothing in it decides: each item only opens what it names.

import { Menu } from "@base-ui/react/menu";
import { ChevronDown, type LucideIcon } from "lucide-react";
import { useHome } from "./home";

export interface MoreItem {
  text: string;
  icon: LucideIcon;
  open: () => void;
  /** A line above it. */
  apart?: boolean;
}

interface MoreProps {
  label: string;
  className: string;
  items: readonly MoreItem[];
  disabled?: boolean;
  /** In place of the arrow. */
  mark?: LucideIcon;
  /** What gets the focus when the menu closes; null is its button. */
  back?: () => HTMLElement | null;
}

export function More({ label, className, items, disabled = false, mark: Mark = ChevronDown, back }: MoreProps) {
  const home = useHome();
  return (
    <Menu.Root disabled={disabled}>
      <Menu.Trigger className={className} aria-label={label} title={label}>
        <Mark size={16} aria-hidden="true" />
      </Menu.Trigger>
      <Menu.Portal container={home}>
        <Menu.Positioner className="ui-over" align="end" sideOffset={6} collisionPadding={8}>
          <Menu.Popup className="ui-menu" finalFocus={() => back?.() ?? true}>
            {items.map(({ text, icon: Icon, open, apart }) => (
              <div key={text} role="presentation">
                {apart && <Menu.Separator className="ui-separator" />}
                <Menu.Item className="ui-item" onClick={open}>
                  <Icon className="ui-icon" size={15} aria-hidden="true" />
                  {text}
                </Menu.Item>
              </div>
            ))}
          </Menu.Popup>
        </Menu.Positioner>
      </Menu.Portal>
    </Menu.Root>
  );
}
