/** Characters that are invisible or that a terminal acts on: controls, direction marks, zero-width characters, line separators, tags, lone surrogates. */
export const CONTROL_CHARACTERS =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu
