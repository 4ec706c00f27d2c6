"""The sliders over ZeRO's formula."""
