% Reference cases for tests/test_matlab.py, computed by GNU Octave and its image package.
%
%   octave --no-gui octave_face.m      writes octave_face.mat, which README.md turns into octave_face.npz
%
% Where Octave's package is known to differ from MATLAB there is no case: fspecial log, motion and
% disk of fractional radius, edgetaper, psnr of int16, imfilter's 'conv' with an even kernel and its
% 'full' with an even kernel or a boundary other than zero, otf2psf to a smaller size.
% Inputs are multiples of 1/64, which keeps the file small.
pkg load image
rand("twister", 20261121);
out = struct();

function x = random(varargin)
  x = round(64 * rand(varargin{:})) / 64;
end

% ---- fspecial_<n>: the filter of row n of fspecial_calls (type, then parameters)
calls = {"average", "average 4", "average 2,5", "disk", "disk 1", "disk 2", "disk 4", "disk 7", ...
         "gaussian", "gaussian 7 1.3", "gaussian 4,6 2", "gaussian 1,9 0.4", "gaussian 17 0.8", ...
         "laplacian", "laplacian 0", "laplacian 1", "laplacian 0.7", "unsharp", "unsharp 0.9", ...
         "prewitt", "sobel"};
out.fspecial_calls = char(calls);
for k = 1:numel(calls)
  words = strsplit(calls{k}, " ");
  parameters = cellfun(@(w) sscanf(strrep(w, ",", " "), "%f")', words(2:end), "UniformOutput", false);
  out.(sprintf("fspecial_%d", k)) = fspecial(words{1}, parameters{:});
end

% ---- imfilter_<i>_<j>: imfilter_a filtered with imfilter_kernel_<i> and the options of row j
a = random(7, 9);
kernels = {random(3, 3) - 0.3, random(5, 2) - 0.3, random(4, 6) - 0.3, random(1, 4), random(9, 11)};
options = {"same", "conv", "full", "full conv", "symmetric", "replicate", "circular", "0.75", ...
           "symmetric conv", "-2 conv"};
out.imfilter_a = a;
out.imfilter_options = char(options);
for i = 1:numel(kernels)
  h = kernels{i};
  out.(sprintf("imfilter_kernel_%d", i)) = h;
  for j = 1:numel(options)
    words = strsplit(options{j}, " ");
    if any(mod(size(h), 2) == 0) && any(ismember({"conv", "full"}, words))
      continue
    end
    for w = 1:numel(words)
      if ! isnan(str2double(words{w}))
        words{w} = str2double(words{w});
      end
    end
    out.(sprintf("imfilter_%d_%d", i, j)) = imfilter(a, h, words{:});
  end
end
% imfilter_<class>_a, _b: with a kernel for which every sum is exact, so that halves occur
classes = {"uint8", "int8", "uint16", "int16", "uint32", "int32", "single"};
out.imfilter_dyadic = [0.5 -1.25 2; 1 0.5 -0.5];
for c = 1:numel(classes)
  a = cast(200 * random(9, 10) - 60, classes{c});
  out.(["imfilter_" classes{c} "_a"]) = a;
  out.(["imfilter_" classes{c} "_b"]) = imfilter(a, out.imfilter_dyadic, "replicate");
end
out.imfilter_colour_a = cast(255 * rand(6, 5, 3), "uint8");
out.imfilter_colour_b = imfilter(out.imfilter_colour_a, out.imfilter_dyadic, "replicate");

% ---- otf_<n>_otf: of otf_<n>_psf at size otf_<n>_size; otf_<n>_back: the way back, at that size
psfs = {random(3, 3), random(4, 5), random(1, 7), random(6, 6), fspecial("gaussian", 5, 1), ...
        zeros(3, 3), random(2, 3, 4), 2};
sizes = {[8 9], [4 5], [6 7], [10 12], [12 12], [5 6], [3 4 5], [3 4]};
for k = 1:numel(psfs)
  name = sprintf("otf_%d_", k);
  out.([name "psf"]) = psfs{k};
  out.([name "size"]) = sizes{k};
  out.([name "otf"]) = psf2otf(psfs{k}, sizes{k});
  out.([name "back"]) = otf2psf(out.([name "otf"]));
end
out.otf2psf_otf = random(6, 5);  % not the transform of anything real: the PSF is complex
out.otf2psf_psf = otf2psf(out.otf2psf_otf);

% ---- measure_<class>_: x and y, immse, psnr, psnr with a peak of 100
classes = {"uint8", "uint16", "int16", "single", "double"};
for k = 1:numel(classes)
  name = ["measure_" classes{k} "_"];
  scale = 1;
  if ! any(strcmp(classes{k}, {"single", "double"}))
    scale = 200;
  end
  x = cast(scale * random(5, 7), classes{k});
  y = cast(scale * random(5, 7), classes{k});
  out.([name "x"]) = x;
  out.([name "y"]) = y;
  out.([name "immse"]) = immse(x, y);
  out.([name "psnr100"]) = psnr(x, y, 100);
  if ! strcmp(classes{k}, "int16")
    out.([name "psnr"]) = psnr(x, y);
  end
end

% ---- filter2matrix_<n>_: kernel, shape (rowsf, colsf, rowsg, colsg) and matrix of the published
% listing for f and g of different sizes, restated with the listing's own loops over blocks and
% its own reservation of rowsf*colsg columns
function H = listing(h, rowsf, colsf, rowsg, colsg)
  [rowsh, colsh] = size(h);
  H = zeros(rowsg * colsg, rowsf * colsg);
  for i = 1:rowsh
    block = zeros(colsg, colsf);
    for j = 1:colsh
      for k = 1:colsg
        p = j - ceil(colsh / 2) + k;
        if p > 0 && p < colsf + 1
          block(k, p) = h(i, j);
        end
      end
    end
    for k = 1:rowsg
      p = i - ceil(rowsh / 2) + k;
      if p > 0 && p < rowsf + 1
        H(1 + (k - 1) * colsg : k * colsg, 1 + colsf * (p - 1) : colsf * p) = block;
      end
    end
  end
end
shapes = {[5 7 5 7], [6 4 8 4], [8 5 3 5], [5 4 5 6], [4 7 4 5], [7 6 4 3], [3 4 6 7]};
hs = {random(3, 3), random(4, 2), random(2, 5), random(3, 4), random(5, 3), random(1, 6), random(6, 1)};
for k = 1:numel(shapes)
  name = sprintf("filter2matrix_%d_", k);
  s = shapes{k};
  out.([name "kernel"]) = hs{k};
  out.([name "shape"]) = s;
  out.([name "matrix"]) = listing(hs{k}, s(1), s(2), s(3), s(4));
end

save("-v7", "octave_face.mat", "-struct", "out");
