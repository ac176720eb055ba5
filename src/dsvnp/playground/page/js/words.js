// Words: the "?" of each tab in three sentences, and how each is used.

export const HELP = {
  curves: [
    "Click to place observations: each panel shows what a network trained on thousands of random curves now believes, as a mean, a 95 % interval, and whole functions it considers possible.",
    "The dark band is what more points would remove, the light band adds the noise; networks without a latent variable cannot tell the two apart and show the light band only.",
    "The dashed orange lines are the exact answer of Bayes' rule, so the distance between the two is what the network has yet to learn.",
  ],
  branches: [
    "Every observation lies on one of two hidden curves, and nothing says on which: the shade is the density that the network predicts, the small dots are observations it makes up.",
    "Freeze z_G and resample z_*: the two curves stay where they are while dots jump from one to the other; freeze z_* and resample z_G: each dot keeps its branch while the curves themselves move, most where there are no observations.",
    "The square shows the plane of z_* at one x, coloured by the y that it stands for.",
  ],
  cartpole: [
    "The cart's mass is hidden; every push gives three measurements of how its speed and the pole's spin changed, with noise, and these are the network's context.",
    "Each draw of the network's global latent z_G is one cart that it considers possible: the bars show the mass that each of them implies, the thin lines where each would roll if it were pushed from rest for 0.3 s.",
    "The dashed orange curve is the exact posterior from the equations of motion, which the network never saw; before the first push everything is possible, and a few pushes settle it.",
  ],
  digits: [
    "Paint some pixels, ink or blank, and the network that has learned from handwritten digits guesses all the others: a neural process sees a picture as a function from a place to its ink.",
    "The second picture is its mean, the third shows in darker blue where it is not sure, and the row below shows whole digits that it considers possible.",
    "With few pixels the possible digits differ, with more they agree; a shape that is no digit at all is outside what it was trained on.",
  ],
};

export const HINTS = {
  curves:
    "Click adds a point, drag moves it, double click or a long press removes it. Keyboard: arrows move the cross or the selected point, Enter adds, N and P select, Delete removes.",
  branches:
    "Click adds a point, drag moves it, double click or a long press removes it; point at a place to see what z_* decides there. Keyboard as on the tab of curves.",
  cartpole: "Push with the buttons, or with the left and right arrow keys while the cart has the focus.",
  digits: "Paint with mouse, finger or pen. Keyboard: arrows move the cell, Space paints it.",
};
