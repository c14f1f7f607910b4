// One of a few values, as a button with a list.

import { Select } from "@base-ui/react/select";
import { Check, ChevronDown } from "lucide-react";
import { useHome } from "./home";

interface ChooseProps<Value extends string | number> {
  label: string;
  value: Value;
  choices: readonly { value: Value; text: string; hint?: string }[];
  choose: (value: Value) => void;
  /** Only heard, where its place says what it is. */
  quiet?: boolean;
}

export function Choose<Value extends string | number>(props: ChooseProps<Value>) {
  const { label, value, choices, choose, quiet = false } = props;
  const home = useHome();
  const items = choices.map((each) => ({ value: each.value, label: each.text }));
  return (
    <div className="ui-choose">
      <Select.Root items={items} value={value} onValueChange={(next) => next !== null && choose(next)}>
        <Select.Label className={quiet ? "app-hidden" : "ui-label"}>{label}</Select.Label>
        <Select.Trigger className="ui-choose-button">
          <Select.Value />
          <Select.Icon className="ui-icon">
            <ChevronDown size={14} aria-hidden="true" />
          </Select.Icon>
        </Select.Trigger>
        <Select.Portal container={home}>
          <Select.Positioner className="ui-over" align="start" sideOffset={4} alignItemWithTrigger={false}>
            <Select.Popup className="ui-menu">
              {choices.map((each) => (
                <Select.Item key={each.value} value={each.value} className="ui-item" title={each.hint}>
                  <Select.ItemIndicator className="ui-icon" keepMounted>
                    <Check size={14} aria-hidden="true" />
                  </Select.ItemIndicator>
                  <Select.ItemText>{each.text}</Select.ItemText>
                </Select.Item>
              ))}
            </Select.Popup>
          </Select.Positioner>
        </Select.Portal>
      </Select.Root>
    </div>
  );
}
