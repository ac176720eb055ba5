"""Panel: members that predict a table without training, the pretrained network among them."""
