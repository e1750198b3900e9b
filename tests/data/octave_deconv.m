% Reference cases for tests/test_matlab_deconv.py, computed by GNU Octave and its image package.
%
%   octave --no-gui octave_deconv.m    writes octave_deconv.mat, which README.md turns into octave_deconv.npz
%
% Octave has deconvwnr with a noise-to-signal ratio above zero (at zero it regularises otherwise than
% MATLAB), and neither deconvreg nor deconvlucy. Inputs are multiples of 1/64, which keeps the file small.
pkg load image
rand("twister", 20261121);
out = struct();

function x = random(varargin)
  x = round(64 * rand(varargin{:})) / 64;
end

% ---- wiener_<n>_img, _psf, _nsr, _out
psfs = {random(3, 3), random(4, 2), random(1, 5), fspecial("gaussian", 5, 1), random(2, 3), random(9, 8)};
sizes = {[8 9], [7 8], [6 11], [12 10], [5 6 3], [9 8]};
ratios = {0.01, 2, 0.1, 1e-4, 0.05, random(9, 8) + 1 / 64};
for k = 1:numel(psfs)
  name = sprintf("wiener_%d_", k);
  out.([name "img"]) = random(sizes{k});
  out.([name "psf"]) = psfs{k};
  out.([name "nsr"]) = ratios{k};
  out.([name "out"]) = deconvwnr(out.([name "img"]), psfs{k}, ratios{k});
end

% ---- wiener_<class>_img, _out: with the last PSF but two and a ratio of 0.05
classes = {"uint8", "uint16", "int16", "single"};
for k = 1:numel(classes)
  name = ["wiener_" classes{k} "_"];
  scale = 1;
  if ! strcmp(classes{k}, "single")
    scale = 255;
  end
  out.([name "img"]) = cast(scale * random(12, 10), classes{k});
  out.([name "out"]) = deconvwnr(out.([name "img"]), psfs{4}, 0.05);
end

save("-v7", "octave_deconv.mat", "-struct", "out");
