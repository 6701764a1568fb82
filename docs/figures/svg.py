"""Boxes, arrows and words as SVG, readable on white and on dark paper."""

from __future__ import annotations

from xml.sax.saxutils import escape

# colours of fill, line and words, on white and on dark paper
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "soft": "#59636e",
    "plain": "#f3f4f6",
    "blue": "#dbe9ff",
    "green": "#d9f2e0",
    "amber": "#ffedc2",
    "red": "#ffdcd7",
    "violet": "#ebe1ff",
}
DARK = {
    "paper": "#16181d",
    "ink": "#eceff4",
    "soft": "#a9b1bd",
    "plain": "#2a2e36",
    "blue": "#1d3a66",
    "green": "#1c4a2c",
    "amber": "#5b4310",
    "red": "#66271f",
    "violet": "#41306b",
}
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def _rules(colours: dict[str, str]) -> str:
    fills = "".join(f".{name}{{fill:{value}}}" for name, value in colours.items())
    soft = colours["soft"]
    return f"{fills}.box,.line{{stroke:{soft}}}.head{{fill:{soft}}}.wait{{stroke:{soft}}}"


class Figure:
    """A drawing; y grows downwards.

    Args:
        width, height: In pixels.
        title: What a reader who does not see it hears.
    """

    def __init__(self, width: int, height: int, title: str):
        self.width = width
        self.height = height
        self.title = title
        self.parts = list[str]()

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str = "",
        fill: str = "plain",
        size: int = 13,
        mono: bool = False,
    ) -> None:
        """A rectangle with lines of text in its middle."""
        self.parts.append(
            f'<rect class="box {fill}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="4"/>'
        )
        lines = text.split("\n") if text else []
        for i, line in enumerate(lines):
            self.text(
                x + w / 2,
                y + h / 2 + size * (0.35 + 1.3 * (i - (len(lines) - 1) / 2)),
                line,
                "middle",
                size,
                mono=mono,
            )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        anchor: str = "start",
        size: int = 13,
        soft: bool = False,
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        """One line of text on a base line."""
        style = (' font-weight="600"' if bold else "") + (
            ' font-family="monospace"' if mono else ""
        )
        self.parts.append(
            f'<text class="{"soft" if soft else "ink"}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
            f' font-size="{size}"{style}>{escape(text)}</text>'
        )

    def arrow(self, *points: tuple[float, float], dashed: bool = False, bend: float = 0) -> None:
        """A line through points with a head at its end; bent upwards by so many pixels if it has
        two points.
        """
        (x0, y0), (x1, y1) = points[0], points[-1]
        way = (
            f"M{x0:g} {y0:g}Q{(x0 + x1) / 2:g} {min(y0, y1) - bend:g} {x1:g} {y1:g}"
            if bend
            else "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        )
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path class="line" fill="none" d="{way}"{dash} stroke-width="1.4"'
            ' marker-end="url(#head)"/>'
        )

    def curve(
        self,
        points: list[tuple[float, float]],
        colour: str,
        width: float = 1.6,
        dashed: bool = False,
    ) -> None:
        """A line through points in a colour of its own."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path fill="none" stroke="{colour}" stroke-width="{width:g}"{dash} '
            f'd="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'
        )

    def svg(self, dark_only: bool = False) -> str:
        """The file; dark_only shows the dark colours in a viewer that has no dark mode."""
        dark = _rules(DARK)
        style = (
            dark if dark_only else f"{_rules(LIGHT)}@media (prefers-color-scheme: dark){{{dark}}}"
        )
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width}'
                    f' {self.height}" width="{self.width}" height="{self.height}" role="img"'
                    f' font-family="{FONT}">'
                ),
                f"<title>{escape(self.title)}</title>",
                f"<style>{style}</style>",
                (
                    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
                    ' markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0'
                    ' 8z"/></marker></defs>'
                ),
                f'<rect class="paper" width="{self.width}" height="{self.height}" rx="8"/>',
                *self.parts,
                "</svg>",
                "",
            ]
        )
