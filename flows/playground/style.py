"""How the page looks. Colours are Okabe and Ito's, which colour-blind readers tell apart; fonts are the system's."""

CSS = """
.pg-cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 14px; }
.pg-card { border: 1px solid var(--border-color-primary); border-radius: 8px; padding: 12px 14px;
  background: var(--block-background-fill); min-width: 0; }
.pg-card header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 10px; }
.pg-card h3 { margin: 0; font-size: 1.05em; }
.pg-budget { opacity: .75; font-variant-numeric: tabular-nums; }
.pg-badge { padding: 1px 8px; border-radius: 10px; font-size: .88em; overflow-wrap: anywhere;
  background: var(--background-fill-secondary); }
.pg-badge.pg-right { background: #009e73; color: #fff; }
.pg-badge.pg-wrong { background: #b34d00; color: #fff; }
.pg-bar { position: relative; display: flex; height: 14px; margin: 12px 0 6px; border-radius: 3px;
  background: var(--background-fill-secondary); }
.pg-bar i { display: block; height: 100%; transition: width .15s; }
.pg-bar i.pg-thinking { background: #56b4e9; }
.pg-bar i.pg-solution { background: #009e73; }
.pg-bar i.pg-forced { background: #d55e00; min-width: 3px; }
.pg-bar .pg-limit { position: absolute; top: -4px; bottom: -4px; border-left: 2px dashed var(--body-text-color);
  transition: left .15s; }
.pg-counts { display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 0 0 8px; font-size: .9em;
  font-variant-numeric: tabular-nums; }
.pg-key::before { content: ""; display: inline-block; width: 9px; height: 9px; margin-right: 5px; border-radius: 2px; }
.pg-key.pg-thinking::before { background: #56b4e9; }
.pg-key.pg-solution::before { background: #009e73; }
.pg-key.pg-forced::before { background: #d55e00; }
.pg-text { font-family: ui-monospace, monospace; font-size: .88em; white-space: pre-wrap; overflow-wrap: anywhere;
  max-height: 420px; overflow-y: auto; padding: 6px 10px; border-left: 3px solid; margin: 6px 0; }
.pg-text.pg-thought { border-color: #56b4e9; }
.pg-text.pg-answer { border-color: #009e73; }
.pg-text mark { background: #d55e00; color: #fff; border-radius: 3px; padding: 0 2px; }
.pg-cut { font-family: system-ui, sans-serif; font-size: .85em; color: #d55e00; white-space: nowrap; padding: 0 4px; }
.pg-finish { margin: 6px 0 0; font-size: .88em; opacity: .75; }
.pg-message { padding: 10px 2px; opacity: .75; }
.pg-message.pg-error { color: var(--body-text-color); border-left: 4px solid #d55e00; padding-left: 12px; }
"""
