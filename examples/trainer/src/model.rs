//! Neural network: 64 pixels, 32 rectified units, softmax over 10 digits; gradients written by hand.
//!
//! All of it is plain f32 arithmetic in a fixed order, and `exp` and `ln` come from `libm` instead of the
//! system's library: the same input gives the same bits on every host.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::data::{CLASSES, FEATURES, Samples};

/// Units between input and output.
const HIDDEN: usize = 32;
/// Start of each layer's numbers in the flat vector of weights.
const HIDDEN_BIAS: usize = FEATURES * HIDDEN;
const OUTPUT: usize = HIDDEN_BIAS + HIDDEN;
const OUTPUT_BIAS: usize = OUTPUT + HIDDEN * CLASSES;
/// Number of learnt parameters.
pub(crate) const WEIGHTS: usize = OUTPUT_BIAS + CLASSES;
/// The smallest probability whose logarithm is taken.
const PROBABILITY_MIN: f32 = 1e-12;

/// Intermediate results for one sample.
struct Activations {
    hidden: [f32; HIDDEN],
    probabilities: [f32; CLASSES],
}

/// The network, with its weights in one flat vector that the ring can add up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Model {
    weights: Vec<f32>,
}

impl Model {
    /// A network with small random weights drawn from `seed`.
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(u64::MAX); // the data order uses the streams from 0 on
        let mut weights = vec![0.0; WEIGHTS];
        fill(&mut weights[..HIDDEN_BIAS], FEATURES, &mut random);
        fill(&mut weights[OUTPUT..OUTPUT_BIAS], HIDDEN, &mut random);
        Self { weights }
    }

    /// A network with given weights, [`WEIGHTS`] of them.
    pub(crate) fn from_weights(weights: Vec<f32>) -> Self {
        assert_eq!(
            weights.len(),
            WEIGHTS,
            "the checkpoint reader checks the number of weights"
        );
        Self { weights }
    }

    /// The weights, [`WEIGHTS`] of them.
    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Adds the gradient of the samples named by `indices` to `gradient` (length [`WEIGHTS`]).
    /// Returns the sum of their losses.
    pub(crate) fn add_gradient(
        &self,
        samples: &Samples,
        indices: &[usize],
        gradient: &mut [f32],
    ) -> f32 {
        let mut loss_sum = 0.0;
        for &index in indices {
            let (pixels, digit) = samples.sample(index);
            let activations = self.forward(pixels);
            loss_sum -= libm::logf(activations.probabilities[digit].max(PROBABILITY_MIN));
            self.backward(pixels, digit, &activations, gradient);
        }
        loss_sum
    }

    /// One step against `gradient_sum`, scaled by `rate`.
    pub(crate) fn descend(&mut self, gradient_sum: &[f32], rate: f32) {
        for (weight, gradient) in self.weights.iter_mut().zip(gradient_sum) {
            *weight -= rate * gradient;
        }
    }

    /// The fraction of samples that are classified correctly.
    pub(crate) fn accuracy(&self, samples: &Samples) -> f64 {
        let right = (0..samples.len()).filter(|&index| {
            let (pixels, digit) = samples.sample(index);
            self.predict(pixels) == digit
        });
        right.count() as f64 / samples.len() as f64
    }

    fn predict(&self, pixels: &[f32]) -> usize {
        let probabilities = self.forward(pixels).probabilities;
        (1..CLASSES).fold(0, |best, class| {
            if probabilities[class] > probabilities[best] {
                class
            } else {
                best
            }
        })
    }

    fn forward(&self, pixels: &[f32]) -> Activations {
        let mut hidden = [0.0; HIDDEN];
        for (unit, value) in hidden.iter_mut().enumerate() {
            let row = &self.weights[unit * FEATURES..(unit + 1) * FEATURES];
            *value = (dot(row, pixels) + self.weights[HIDDEN_BIAS + unit]).max(0.0);
        }
        let mut scores = [0.0; CLASSES];
        for (class, score) in scores.iter_mut().enumerate() {
            let start = OUTPUT + class * HIDDEN;
            *score = dot(&self.weights[start..start + HIDDEN], &hidden)
                + self.weights[OUTPUT_BIAS + class];
        }
        Activations {
            hidden,
            probabilities: softmax(scores),
        }
    }

    fn backward(
        &self,
        pixels: &[f32],
        digit: usize,
        activations: &Activations,
        gradient: &mut [f32],
    ) {
        let mut hidden_error = [0.0; HIDDEN];
        for class in 0..CLASSES {
            let target = if class == digit { 1.0 } else { 0.0 };
            let error = activations.probabilities[class] - target;
            gradient[OUTPUT_BIAS + class] += error;
            let start = OUTPUT + class * HIDDEN;
            for unit in 0..HIDDEN {
                gradient[start + unit] += error * activations.hidden[unit];
                hidden_error[unit] += error * self.weights[start + unit];
            }
        }
        for unit in 0..HIDDEN {
            if activations.hidden[unit] <= 0.0 {
                continue; // an inactive rectified unit propagates no error
            }
            gradient[HIDDEN_BIAS + unit] += hidden_error[unit];
            let row = &mut gradient[unit * FEATURES..(unit + 1) * FEATURES];
            for (slot, pixel) in row.iter_mut().zip(pixels) {
                *slot += hidden_error[unit] * pixel;
            }
        }
    }
}

/// Uniform weights within +-sqrt(6 / inputs), the usual start for rectified units (He et al. 2015).
fn fill(weights: &mut [f32], inputs: usize, random: &mut ChaCha8Rng) {
    let bound = libm::sqrtf(6.0 / inputs as f32);
    for weight in weights {
        *weight = random.random_range(-bound..bound);
    }
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).fold(0.0, |sum, (a, b)| sum + a * b)
}

fn softmax(scores: [f32; CLASSES]) -> [f32; CLASSES] {
    // Relative to the largest score, so that no exponential overflows.
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials = scores.map(|score| libm::expf(score - largest));
    let sum: f32 = exponentials.iter().sum();
    exponentials.map(|value| value / sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Data;

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let data = Data::load();
        let model = Model::random(3);
        let indices = [0, 1, 2, 3];
        let mut gradient = vec![0.0; WEIGHTS];
        model.add_gradient(&data.training, &indices, &mut gradient);
        let difference = 1e-2;
        for position in [20, 700, HIDDEN_BIAS + 3, OUTPUT + 5, OUTPUT_BIAS + 2] {
            let loss_at = |offset: f32| {
                let mut moved = model.clone();
                moved.weights[position] += offset;
                moved.add_gradient(&data.training, &indices, &mut vec![0.0; WEIGHTS])
            };
            let measured = (loss_at(difference) - loss_at(-difference)) / (2.0 * difference);
            assert!(
                (measured - gradient[position]).abs() < 0.02,
                "weight {position}: measured {measured}, computed {}",
                gradient[position]
            );
        }
    }
}
