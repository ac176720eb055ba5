"""Networks trained once on synthetic functions, for use without training."""

from dsvnp.pretrained.heads import for_classes, for_numbers
from dsvnp.pretrained.loading import Card, load_pretrained, read_card, save_pretrained

__all__ = ["Card", "for_classes", "for_numbers", "load_pretrained", "read_card", "save_pretrained"]
